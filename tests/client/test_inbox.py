"""Where answers arrive: any cut of the stream gives the same frame."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.client.session.inbox import FIRST_BYTES, KEPT_BYTES_MAX, Inbox
from headrace.wire.errors import RemoteError
from headrace.wire.layout import SIZE


def frame(size: int) -> bytes:
    data = bytearray(bytes(range(256)) * (size // 256 + 1))[:size]
    data[SIZE] = size.to_bytes(4, "little")
    return bytes(data)


def receive(inbox: Inbox, data: bytes, sizes: list[int]) -> bytes:
    """Give bytes as a socket does: at most what there is place for."""
    inbox.clear()
    sizes = [*sizes]
    while (taken := inbox.take()) is None:
        place = inbox.space()
        count = min(len(place), len(data), sizes.pop(0) if sizes else len(data))
        assert count > 0
        assert inbox.missing <= len(place)
        place[:count] = data[:count]
        inbox.fill(count)
        data = data[count:]
    return bytes(taken)


@settings(max_examples=40)
@given(
    sizes=st.lists(
        st.one_of(st.integers(HEADER_BYTES, 2000), st.integers(FIRST_BYTES - 2, 3 * FIRST_BYTES)),
        min_size=1,
        max_size=4,
    ),
    cuts=st.lists(st.integers(1, 70_000), max_size=8),
)
def test_any_cut_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    inbox = Inbox()
    for size in sizes:
        assert receive(inbox, frame(size), cuts) == frame(size)
        assert not inbox.is_overfull


def test_what_follows_a_small_frame_is_seen() -> None:
    inbox = Inbox()
    receive(inbox, frame(300) + b"more", [])
    assert inbox.is_overfull


def test_the_next_large_answer_has_place_at_once() -> None:
    inbox = Inbox()
    receive(inbox, frame(3 * FIRST_BYTES), [])
    inbox.clear()
    assert len(inbox.space()) == 3 * FIRST_BYTES
    assert receive(inbox, frame(300) + b"more", []) == frame(300)
    assert inbox.is_overfull


def test_a_large_buffer_is_let_go() -> None:
    inbox = Inbox()
    receive(inbox, frame(KEPT_BYTES_MAX + 1), [])
    inbox.clear()
    assert len(inbox.space()) == FIRST_BYTES


@pytest.mark.parametrize("size", [0, HEADER_BYTES - 1, FRAME_BYTES_MAX + 1])
def test_a_size_outside_the_limits_is_refused(size: int) -> None:
    inbox = Inbox()
    data = bytearray(frame(300))
    data[SIZE] = size.to_bytes(4, "little")
    with pytest.raises(RemoteError, match="allowed 256 to"):
        receive(inbox, bytes(data), [])
