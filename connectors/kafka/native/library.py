"""The functions of librdkafka that are called directly, once it is proven to be the library they were tested on."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
from pathlib import Path

import confluent_kafka

TESTED_VERSIONS = frozenset({"2.16.0"})
"""Of librdkafka. Its structures are public and stable; what is beyond them (below) is proven at load, too."""
SWITCH = "HEADRACE_KAFKA_CLIENT"
"""Environment variable: `python` takes the road over Python objects everywhere."""

POINTER_BYTES = 8
MESSAGE_BYTES = 72
"""rd_kafka_message_t on 64-bit platforms, as 8-byte words: error (4 bytes), topic, partition (4 bytes), payload, its
length, key, its length, offset, private."""
ERROR, TOPIC, PARTITION, PAYLOAD, PAYLOAD_BYTES, KEY, KEY_BYTES, OFFSET = range(8)
MESSAGE_WORDS = MESSAGE_BYTES // 8

COPY_PAYLOAD = 0x2
"""RD_KAFKA_MSG_F_COPY"""
CONSUMER = 1
EVENT_LOG, EVENT_ERROR = 0x4, 0x8
ERROR_TEXT_BYTES = 512
ERROR_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
"""client, code, text, opaque"""

_log = logging.getLogger("connectors.kafka")


class Library:
    """librdkafka with the types of the functions used here. Every call releases Python's lock."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        size, size_result = ctypes.c_size_t, ctypes.c_ssize_t
        declared = self._declared
        self.version_str = declared("rd_kafka_version_str", text)
        self.name = declared("rd_kafka_name", text, pointer)
        self.err2str = declared("rd_kafka_err2str", text, integer)
        self.error_code = declared("rd_kafka_error_code", integer, pointer)
        self.error_string = declared("rd_kafka_error_string", text, pointer)
        self.error_destroy = declared("rd_kafka_error_destroy", None, pointer)
        # configuration, life and death
        self.conf_new = declared("rd_kafka_conf_new", pointer)
        self.conf_set = declared("rd_kafka_conf_set", integer, pointer, text, text, pointer, size)
        self.conf_set_events = declared("rd_kafka_conf_set_events", None, pointer, integer)
        self.conf_set_error_cb = declared("rd_kafka_conf_set_error_cb", None, pointer, ERROR_CALLBACK)
        self.conf_destroy = declared("rd_kafka_conf_destroy", None, pointer)
        self.new = declared("rd_kafka_new", pointer, integer, pointer, pointer, size)
        self.destroy = declared("rd_kafka_destroy", None, pointer)
        # events
        self.queue_get_main = declared("rd_kafka_queue_get_main", pointer, pointer)
        self.queue_destroy = declared("rd_kafka_queue_destroy", None, pointer)
        self.queue_poll = declared("rd_kafka_queue_poll", pointer, pointer, integer)
        self.set_log_queue = declared("rd_kafka_set_log_queue", integer, pointer, pointer)
        self.event_type = declared("rd_kafka_event_type", integer, pointer)
        self.event_error = declared("rd_kafka_event_error", integer, pointer)
        self.event_error_string = declared("rd_kafka_event_error_string", text, pointer)
        self.event_error_is_fatal = declared("rd_kafka_event_error_is_fatal", integer, pointer)
        self.event_log = declared("rd_kafka_event_log", integer, pointer, pointer, pointer, pointer)
        self.event_destroy = declared("rd_kafka_event_destroy", None, pointer)
        # lists of partitions
        self.partitions_new = declared("rd_kafka_topic_partition_list_new", pointer, integer)
        self.partitions_add = declared("rd_kafka_topic_partition_list_add", pointer, pointer, text, ctypes.c_int32)
        self.partitions_set_offset = declared(
            "rd_kafka_topic_partition_list_set_offset", integer, pointer, text, ctypes.c_int32, ctypes.c_int64
        )
        self.partitions_destroy = declared("rd_kafka_topic_partition_list_destroy", None, pointer)
        # consuming
        self.incremental_assign = declared("rd_kafka_incremental_assign", pointer, pointer, pointer)
        self.incremental_unassign = declared("rd_kafka_incremental_unassign", pointer, pointer, pointer)
        self.queue_get_consumer = declared("rd_kafka_queue_get_consumer", pointer, pointer)
        self.consume_batch_queue = declared(
            "rd_kafka_consume_batch_queue", size_result, pointer, integer, pointer, size
        )
        self.consumer_close = declared("rd_kafka_consumer_close", integer, pointer)
        self.commit = declared("rd_kafka_commit", integer, pointer, pointer, integer)
        self.get_watermark_offsets = declared(
            "rd_kafka_get_watermark_offsets", integer, pointer, text, ctypes.c_int32, pointer, pointer
        )
        self.message_timestamp = declared("rd_kafka_message_timestamp", ctypes.c_int64, pointer, pointer)
        self.topic_name = declared("rd_kafka_topic_name", text, pointer)
        self.messages_count = declared("rd_kafka_messages_count", size, pointer)
        self.messages_get = declared("rd_kafka_messages_get", pointer, pointer, size)
        self.messages_destroy = declared("rd_kafka_messages_destroy", None, pointer)
        # producing
        self.topic_new = declared("rd_kafka_topic_new", pointer, pointer, text, pointer)
        self.topic_destroy = declared("rd_kafka_topic_destroy", None, pointer)
        self.produce_batch = declared(
            "rd_kafka_produce_batch", integer, pointer, ctypes.c_int32, integer, pointer, integer
        )
        # The C library that librdkafka itself allocates with.
        self.malloc = _typed(ctypes.CDLL(None).malloc, pointer, size)
        self.free = _typed(ctypes.CDLL(None).free, None, pointer)

    def _declared(self, name: str, result: object, *arguments: object) -> ctypes._NamedFuncPointer:
        return _typed(getattr(self._library, name), result, *arguments)

    def is_batch_layout_known(self) -> bool:
        """Whether a batch of messages is a count followed by pointers: asked of the library's own accessors. Such a
        block of ours may then be handed to `messages_destroy`, which destroys the messages and frees the block."""
        block = (ctypes.c_size_t * 3)(2, 0x1110, 0x2220)
        address = ctypes.addressof(block)
        found = [self.messages_get(address, index) for index in (0, 1)]
        return int(self.messages_count(address)) == 2 and found == [0x1110, 0x2220]


def _typed(function: ctypes._NamedFuncPointer, result: object, *arguments: object) -> ctypes._NamedFuncPointer:
    function.restype = result  # type: ignore[assignment]
    function.argtypes = arguments  # type: ignore[assignment]
    return function


@functools.cache
def load() -> Library | None:
    """The library, or None where the road over Python objects must be taken (and why is logged once)."""
    if os.environ.get(SWITCH, "").lower() == "python":
        return None
    reason = _unsuitable_platform()
    if not reason:
        path = _path()
        if path is None:
            reason = "confluent-kafka does not bring its own librdkafka"
        else:
            try:
                library = Library(path)
                version = library.version_str().decode()
                if version not in TESTED_VERSIONS:
                    reason = f"librdkafka {version} is not one of the tested {', '.join(sorted(TESTED_VERSIONS))}"
                elif not library.is_batch_layout_known():
                    reason = "its batches of messages are laid out otherwise"
                else:
                    return library
            except (OSError, AttributeError) as error:
                reason = str(error)
    _log.warning("Kafka records pass through Python objects, which costs twice the CPU: %s", reason)
    return None


def _unsuitable_platform() -> str:
    if sys.platform != "linux":
        return f"direct calls were tested on Linux only, not on {sys.platform}"
    if ctypes.sizeof(ctypes.c_void_p) != POINTER_BYTES or sys.byteorder != "little":
        return "direct calls need a 64-bit little-endian machine"
    return ""


def _path() -> Path | None:
    """Where the wheel keeps the library that its own extension module is linked to."""
    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.with_name("confluent_kafka.libs").glob("librdkafka*.so*"))
    return found[0] if len(found) == 1 else None
