"""What the gateway itself refuses, apart from wrong SQL. Each class says whose fault it is in HTTP-free words."""

from __future__ import annotations


class GatewayError(Exception):
    """The request cannot be served. `code` is a stable word for programs; `hint` says what to do instead."""

    code = "GATEWAY_ERROR"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UnknownSessionError(GatewayError):
    """No session with that handle: never opened, closed, or expired."""

    code = "UNKNOWN_SESSION"


class UnknownOperationError(GatewayError):
    """The session has no operation with that handle: never submitted, or closed."""

    code = "UNKNOWN_OPERATION"


class OperationStateError(GatewayError):
    """The operation's state does not allow what was asked."""

    code = "OPERATION_STATE"


class TokenPassedError(GatewayError):
    """The page was already followed by another one; only the last page is kept."""

    code = "TOKEN_PASSED"


class TokenAheadError(GatewayError):
    """No page has announced this token."""

    code = "TOKEN_UNKNOWN"


class UnsupportedRequestError(GatewayError):
    """A part of the protocol that is refused by name."""

    code = "UNSUPPORTED"


class LimitReachedError(GatewayError):
    """A limit of the server protects it; the hint says which setting."""

    code = "LIMIT_REACHED"


class ResultUnavailableError(GatewayError):
    """The rows of a query are gone; the statement must be run again."""

    code = "RESULT_LOST"
