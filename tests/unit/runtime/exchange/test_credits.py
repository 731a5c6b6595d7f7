"""Credit windows."""

from __future__ import annotations

from runtime.exchange.credits import CHANNEL_BYTES_MAX, CHANNEL_BYTES_MIN, CreditWindow, channel_capacity


def test_a_closed_window_admits_nothing() -> None:
    window = CreditWindow()
    assert not window.admits(1)
    window.open(100)
    assert window.admits(1)


def test_one_batch_is_always_admitted() -> None:
    window = CreditWindow(100)
    assert window.admits(10_000)
    window.take(10_000)
    assert not window.admits(1)
    window.give_back(10_000)
    assert window.admits(1)


def test_bytes_under_way_are_bounded() -> None:
    window = CreditWindow(100)
    window.take(60)
    assert window.admits(40)
    assert not window.admits(41)
    window.take(40)
    window.give_back(60)
    assert window.admits(60)


def test_capacity_is_shared_and_bounded() -> None:
    assert channel_capacity(64_000_000, 1) == CHANNEL_BYTES_MAX
    assert channel_capacity(64_000_000, 32) == 2_000_000
    assert channel_capacity(64_000_000, 10_000) == CHANNEL_BYTES_MIN
    assert channel_capacity(64_000_000, 0) == CHANNEL_BYTES_MAX
