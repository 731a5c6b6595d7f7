"""Runtime operators: one per file; see protocol.py."""
