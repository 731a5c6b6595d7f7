"""Typed reading of WITH options, with errors that name the option."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from connectors.api import TableDefinition
from connectors.errors import OptionError

# Options of every source or sink; the planner and the runtime read them.
SOURCE_OPTIONS = frozenset(
    {
        "connector",
        "scan.parallelism",
        "scan.slot-sharing-group",
        "scan.watermark.emit.strategy",
        "scan.watermark.idle-timeout",
    }
)
SINK_OPTIONS = frozenset({"connector", "sink.parallelism", "sink.slot-sharing-group"})


class Options:
    """The WITH clause of one table."""

    def __init__(self, table: TableDefinition) -> None:
        self._options = table.options
        self._connector = table.options.get("connector", "")

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raises OptionError for the first option that is not in `known`."""
        names = sorted(known)
        for name in self._options:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                raise OptionError(
                    f"the {self._connector} connector has no option '{name}'",
                    option=name,
                    hint=f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(names)}.",
                )

    def text(self, name: str, default: str) -> str:
        return self._options.get(name, default)

    def required(self, name: str) -> str:
        value = self._options.get(name)
        if not value:
            raise OptionError(f"the {self._connector} connector needs the option '{name}'", option=name)
        return value

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._options.get(name, default).strip().lower()
        if value not in choices:
            raise self.bad(name, f"one of {', '.join(choices)}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, "true" if default else "false", ("true", "false")) == "true"

    def integer(self, name: str, default: int, smallest: int | None = None) -> int:
        value = self.optional_integer(name, smallest)
        return default if value is None else value

    def optional_integer(self, name: str, smallest: int | None = None) -> int | None:
        text = self._options.get(name)
        if text is None:
            return None
        try:
            value = int(text.strip())
        except ValueError as problem:
            raise self.bad(name, "a whole number") from problem
        if smallest is not None and value < smallest:
            raise self.bad(name, f"at least {smallest}")
        return value

    def bad(self, name: str, wanted: str) -> OptionError:
        """The error for an option whose value is not as wanted."""
        return OptionError(f"'{name}' must be {wanted}, not '{self._options.get(name, '')}'", option=name)
