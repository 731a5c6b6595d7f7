"""Why a start cannot take over a checkpoint."""

from __future__ import annotations


class RestoreRefusedError(Exception):
    """The checkpoint does not fit the job or cannot be read; the message names what is wrong."""

    domain = "user"
    retry = False

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
