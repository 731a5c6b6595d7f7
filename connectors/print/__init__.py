"""Flink's `print` sink: every change as a line of text on standard output or error.

`text` spells values as Flink prints them, `connector` writes the lines.
"""
