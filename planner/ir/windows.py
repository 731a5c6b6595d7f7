"""Windows of event and processing time, as operators know them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from planner.ir.types import DataType


class TumbleWindow(msgspec.Struct, frozen=True, tag_field="node", tag="tumble"):
    """Windows [start, start + size) with start = ts - floorMod(ts - offset, size), in `time_zone` local time when
    the time column is TIMESTAMP_LTZ. `time_index` is the time column in the aggregate's (original) input; None =
    processing time: a row belongs to the windows of the wall clock when its batch arrives, which fire by timers."""

    time_index: int | None
    time_type: DataType
    size_ms: int
    offset_ms: int = 0
    time_zone: str = "UTC"


class HopWindow(msgspec.Struct, frozen=True, tag_field="node", tag="hop"):
    """Windows [start, start + size) at every `slide_ms`; size is a multiple of slide, so a slice is one slide long
    and a window is the union of size / slide slices. The other fields as in TumbleWindow."""

    time_index: int | None
    time_type: DataType
    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    time_zone: str = "UTC"


class CumulateWindow(msgspec.Struct, frozen=True, tag_field="node", tag="cumulate"):
    """Windows [start, start + n * step), n = 1 .. size / step, with start as of a tumbling window of `size_ms`; a slice
    is one step long. A window fires at every step from the first one with rows on, changed or not."""

    time_index: int | None
    time_type: DataType
    size_ms: int
    step_ms: int
    offset_ms: int = 0
    time_zone: str = "UTC"


AlignedWindow = TumbleWindow | HopWindow | CumulateWindow


class AttachedWindow(msgspec.Struct, frozen=True, tag_field="node", tag="attached"):
    """Each row carries the window it belongs to, from a window table function or a windowed aggregate below: column
    `end_index` is its TIMESTAMP(3) window_end. `window` says how starts follow from ends (its `time_index` is not
    read; its time type and zone say how an end becomes an instant)."""

    end_index: int
    window: AlignedWindow


Window = AlignedWindow | AttachedWindow


class WindowProperty(StrEnum):
    """Window columns an aggregate may append to its output."""

    START = "window_start"
    END = "window_end"
    TIME = "window_time"
