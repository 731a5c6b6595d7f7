"""What the formats whose messages are rows have in common."""

from __future__ import annotations

from collections.abc import Mapping

from planner.ir.types import ChangelogMode, DataType


class RowFormat:
    """A message is a row and nothing else: no change, no metadata."""

    def changelog(self, options: Mapping[str, str]) -> ChangelogMode:
        return ChangelogMode.INSERT_ONLY

    def metadata_types(self, options: Mapping[str, str]) -> Mapping[str, DataType]:
        return {}
