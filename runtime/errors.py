"""Failures of the runtime itself: whose fault they are and whether another try may help."""

from __future__ import annotations

from connectors.errors import ErrorDomain


class TaskError(Exception):
    """A task cannot go on. `hint` says what the user can do."""

    def __init__(self, message: str, *, domain: ErrorDomain, retry: bool, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.domain = domain
        self.retry = retry
        self.hint = hint
