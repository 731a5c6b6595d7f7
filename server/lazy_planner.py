"""The planner, loaded at its first use or when `load_planner` says so: HTTP answers before SQL can be read, which takes
half a second of CPU to load."""

from __future__ import annotations

import importlib
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["load_planner", "planner_api"]

_NAME = "planner.api"


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    from planner import api as planner_api
else:
    planner_api = _LazyModule(_NAME)


_loading = threading.Event()


def load_planner() -> None:
    """Load it in a thread of its own, once. A statement that comes meanwhile waits for it."""
    if _loading.is_set():
        return
    _loading.set()
    threading.Thread(target=importlib.import_module, args=(_NAME,), name="planner", daemon=True).start()
