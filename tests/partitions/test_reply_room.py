"""Room for replies: shares become smaller, and all together stay within the bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.limits import MIB
from headrace.partitions.reply_room import READ_BYTES_MAX, ReplyRoom

BOUND = 256 * MIB


def test_with_room_a_reply_has_what_it_may_have() -> None:
    room = ReplyRoom(2 * BOUND)
    assert room.share(64 * MIB) == 64 * MIB
    assert room.share(16 * MIB) == 16 * MIB
    assert not room.is_short
    assert not room.is_scarce


def test_replies_become_shorter_and_never_empty() -> None:
    room = ReplyRoom(BOUND)
    shares = []
    for _ in range(1000):
        shares.append(room.share(64 * MIB))
        room.send(shares[-1])
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 1
    assert sum(shares) < BOUND * 7 // 8 + 1000
    assert room.is_scarce
    assert not room.is_short


def test_a_report_replaces_what_was_sent() -> None:
    room = ReplyRoom(BOUND)
    room.send(100 * MIB)
    room.send(20 * MIB)
    room.report(written_bytes=100 * MIB, waiting_bytes=30 * MIB)
    assert room.bytes_left == BOUND - 50 * MIB
    room.settle()
    assert room.bytes_left == BOUND - 30 * MIB
    room.report(written_bytes=500 * MIB, waiting_bytes=0)
    assert room.bytes_left == BOUND


@pytest.mark.parametrize("count", [0, 5 * MIB])
def test_what_is_read_counts_until_it_is_released(count: int) -> None:
    room = ReplyRoom(BOUND)
    room.hold(7)
    room.grow(7, count)
    room.grow(8, count)  # a poll that nobody counts
    assert room.bytes_left == BOUND - READ_BYTES_MAX - count
    room.release(7)
    room.release(7)
    assert room.bytes_left == BOUND


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "hold", "grow", "release", "report", "settle"]),
            st.integers(0, 9),
            st.integers(0, 80 * MIB),
        )
    )
)
def test_any_order_keeps_the_sum(steps: list[tuple[str, int, int]]) -> None:
    room = ReplyRoom(BOUND)
    held: dict[int, int] = {}
    for kind, ticket, count in steps:
        match kind:
            case "send":
                before, share = room.bytes_left, room.share(64 * MIB)
                room.send(share)
                assert share == 1 or before - share > BOUND // 8
            case "hold" if ticket not in held:
                room.hold(ticket)
                held[ticket] = READ_BYTES_MAX
            case "grow" if ticket in held:
                room.grow(ticket, count)
                held[ticket] = READ_BYTES_MAX + count
            case "release":
                room.release(ticket)
                held.pop(ticket, None)
            case "report":
                room.report(written_bytes=count, waiting_bytes=count // 2)
            case _:
                room.settle()
        room.check()
        assert room.held_bytes == sum(held.values())
