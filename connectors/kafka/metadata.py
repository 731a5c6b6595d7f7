"""Metadata columns of Kafka records: which keys there are, and their values for a run of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from connectors.api import Int64Array, MetadataField
from connectors.arrow import declared
from connectors.errors import OptionError
from connectors.kafka.records import Records

if TYPE_CHECKING:
    Array = pa.Array[Any]

_TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


def metadata_array(field: MetadataField, records: Records, chosen: Int64Array, local_time_zone: str) -> Array:
    """One metadata column of the chosen records, in the column's declared type."""
    values: Array
    match field.key:
        case "topic":
            values = _topics(records, chosen)
        case "partition":
            values = pa.array(records.partitions[chosen].astype(np.int32))
        case "offset":
            values = pa.array(records.offsets[chosen])
        case "timestamp":
            values = pa.array(records.timestamps_ms(chosen)).cast(pa.timestamp("ms", "UTC"))
        case "timestamp-type":
            kinds = [_TIMESTAMP_TYPES.get(m.timestamp()[0], "NoTimestampType") for m in records.messages(chosen)]
            values = pa.array(kinds, pa.string())
        case "leader-epoch":
            values = pa.array([message.leader_epoch() for message in records.messages(chosen)], pa.int32())
        case "headers":
            # One entry per name: of several headers with one name the last wins.
            entries = [list(dict(message.headers() or ()).items()) for message in records.messages(chosen)]
            values = pa.array(entries, pa.map_(pa.string(), pa.binary()))
        case key:
            raise OptionError(f"kafka has no metadata '{key}'")
    found: Array = declared(values, field.type, local_time_zone)
    return found


def _topics(records: Records, chosen: Int64Array) -> Array:
    codes = np.zeros(records.count, np.int32)
    names: list[str] = []
    for name, own in records.topics():
        codes[own] = len(names)
        names.append(name)
    return pa.array(names, pa.string()).take(codes[chosen])
