"""The choice of a state backend: setting `state.backend.type`."""

from __future__ import annotations

from runtime.job_settings import STATE_BACKEND
from runtime.operators.protocol import OperatorContext
from runtime.state.memory import MemoryStateBackend
from runtime.state.protocol import KeyedStateBackend


def open_backend(operator: str, context: OperatorContext) -> KeyedStateBackend:
    """The backend of one operator of one subtask; `close` it at the end."""
    if context.settings.get(STATE_BACKEND, "hashmap").strip().lower() == "rocksdb":
        # Loaded by the jobs that use it alone.
        from runtime.state.rocksdb.backend import RocksStateBackend

        return RocksStateBackend(operator, context)
    return MemoryStateBackend(operator, context)
