"""Metadata columns of Kafka records: which keys there are, and their values for a run of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from connectors.api import Int64Array, MetadataField
from connectors.arrow import declared
from connectors.errors import OptionError

if TYPE_CHECKING:
    Array = pa.Array[Any]

_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


def metadata_array(
    field: MetadataField, messages: Sequence[Message], offsets: Int64Array, local_time_zone: str
) -> Array:
    """One metadata column over `messages` (whose offsets are known already), in the column's declared type."""
    values: Array
    match field.key:
        case "topic":
            values = pa.array([message.topic() for message in messages], pa.string())
        case "partition":
            values = pa.array([message.partition() for message in messages], pa.int32())
        case "offset":
            values = pa.array(offsets)
        case "timestamp":
            stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
            values = pa.array(stamps).cast(pa.timestamp("ms", "UTC"))
        case "timestamp-type":
            kinds = [_TIMESTAMP_TYPES.get(message.timestamp()[0], "NoTimestampType") for message in messages]
            values = pa.array(kinds, pa.string())
        case "leader-epoch":
            values = pa.array([message.leader_epoch() for message in messages], pa.int32())
        case "headers":
            # One entry per name: of several headers with one name the last wins.
            entries = [list(dict(message.headers() or ()).items()) for message in messages]
            values = pa.array(entries, pa.map_(pa.string(), pa.binary()))
        case key:
            raise OptionError(f"kafka has no metadata '{key}'")
    found: Array = declared(values, field.type, local_time_zone)
    return found
