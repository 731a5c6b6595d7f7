"""Credit of one channel, in bytes. Pure: the caller locks and waits."""

from __future__ import annotations


class CreditWindow:
    """How many bytes of batches may be under way on a channel: sent and not yet taken by the consumer.

    A closed window (capacity not yet announced) admits nothing. An open one admits a batch that fits beside those
    under way, and always one batch when nothing is, whatever its size: no batch is too large to pass.
    Control elements are not counted here; they need no credit.
    """

    def __init__(self, capacity_bytes: int = 0) -> None:
        self.capacity_bytes = capacity_bytes
        self.outstanding_bytes = 0

    @property
    def is_open(self) -> bool:
        return self.capacity_bytes > 0

    def open(self, capacity_bytes: int) -> None:
        """The consumer has announced its capacity."""
        assert capacity_bytes > 0
        self.capacity_bytes = capacity_bytes

    def admits(self, byte_size: int) -> bool:
        """Whether a batch of this size may be sent now."""
        if not self.is_open:
            return False
        return self.outstanding_bytes == 0 or self.outstanding_bytes + byte_size <= self.capacity_bytes

    def take(self, byte_size: int) -> None:
        """A batch is sent."""
        assert self.admits(byte_size), "a batch was sent without credit"
        self.outstanding_bytes += byte_size

    def give_back(self, byte_size: int) -> None:
        """The consumer has taken a batch from its queue."""
        self.outstanding_bytes -= byte_size
        assert self.outstanding_bytes >= 0, "more credit came back than was taken"


CHANNEL_BYTES_MAX = 4_000_000
CHANNEL_BYTES_MIN = 256_000


def channel_capacity(network_bytes: int, channel_count: int) -> int:
    """Bytes that one input channel may hold when `channel_count` of them share the slot's network memory."""
    return max(CHANNEL_BYTES_MIN, min(CHANNEL_BYTES_MAX, network_bytes // max(1, channel_count)))
