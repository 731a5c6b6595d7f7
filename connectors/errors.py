"""Connector failures: whose fault it is and whether another try may help."""

from __future__ import annotations

from enum import StrEnum


class ErrorDomain(StrEnum):
    """Whose fault an error is."""

    USER = "user"
    EXTERNAL = "external"
    INTERNAL = "internal"


class ConnectorError(Exception):
    """A connector or format cannot go on. `retry` says whether a restart from the last checkpoint may help; `hint`
    what the user can do."""

    def __init__(self, message: str, *, domain: ErrorDomain, retry: bool, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.domain = domain
        self.retry = retry
        self.hint = hint


class DamagedFileError(ConnectorError):
    """A file that a checkpoint names is missing or not what was written. `damaged_file` is its path among the job's
    checkpoint files: another checkpoint may be whole."""

    def __init__(self, message: str, damaged_file: str, *, hint: str = "") -> None:
        super().__init__(message, domain=ErrorDomain.EXTERNAL, retry=True, hint=hint)
        self.damaged_file = damaged_file


class OptionError(ConnectorError):
    """A WITH option is unknown, missing or malformed. Raised before anything starts."""

    def __init__(self, message: str, *, option: str = "", hint: str = "") -> None:
        super().__init__(message, domain=ErrorDomain.USER, retry=False, hint=hint)
        self.option = option


class DirectionError(OptionError):
    """The options are well-formed, but the table cannot be used in the direction asked for: a sink-only connector
    read from, or a Kafka table without a start position. A table may be defined so and used the other way."""


class RecordError(ConnectorError):
    """One record cannot be decoded; the message names split, position and field."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, domain=ErrorDomain.USER, retry=False, hint=hint)
