"""What statements do: one file per kind, each readable top to bottom as check → plan → submit.

`dispatch.py` finds the handler of a parsed statement; `context.py` is what a handler may use; `result.py` is what it
returns.
"""
