"""The choice of a state backend: setting `state.backend.type`."""

from __future__ import annotations

from runtime.operators.protocol import OperatorContext
from runtime.state.memory import MemoryStateBackend
from runtime.state.protocol import KeyedStateBackend


def open_backend(operator: str, context: OperatorContext) -> KeyedStateBackend:
    """The backend of one operator of one subtask; `close` it at the end."""
    return MemoryStateBackend(operator, context)
