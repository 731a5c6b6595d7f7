"""Failures of state: whose fault, and whether another try may help."""

from __future__ import annotations


class StateTooLargeError(Exception):
    """An in-memory state is above its share of the slot's managed memory."""

    domain = "user"
    retry = False

    def __init__(self, operator: str, state_bytes: int, managed_bytes: int) -> None:
        super().__init__(
            f"state of operator {operator} takes {state_bytes:,} bytes, more than its {managed_bytes:,} bytes of "
            "managed memory"
        )
        self.hint = "SET 'state.backend.type' = 'rocksdb', or raise [taskmanager] process-bytes or the parallelism."


class SegmentError(Exception):
    """A state file is missing, damaged or not what its handle says. `damaged_file`: its path, if another checkpoint may
    be whole; otherwise trying again does not help."""

    domain = "external"
    hint = "Restore from another checkpoint or savepoint."

    def __init__(self, message: str, damaged_file: str = "") -> None:
        super().__init__(message)
        self.damaged_file = damaged_file
        self.retry = bool(damaged_file)
