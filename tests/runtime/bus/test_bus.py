"""Lanes between members: bounded, in order, never waiting."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.ids import GATEWAY
from headrace.base.limits import HEADER_BYTES, KIB, MIB
from headrace.ports.bus import (
    BusFrames,
    BusRefused,
    DropReason,
    FrameLost,
    MemberLost,
    ReleaseReply,
    SendToMember,
)
from headrace.ports.network import Ticked
from headrace.runtime.bus.bus import Bus, interleave
from headrace.runtime.bus.ends import (
    CAPACITY_MAX,
    BusEnds,
    LaneEnd,
    check_capacity,
    make_bus,
    read_ends,
)
from headrace.runtime.bus.lane import LARGE_FRAME_BYTES, READ_BYTES, LaneReader, SendQueue
from headrace.runtime.pump import Pump
from headrace.wire.bus.decode import decode_bus
from headrace.wire.bus.prefix import PREFIX_BYTES, encode_prefix
from headrace.wire.errors import RemoteError
from headrace.wire.numbers import FrameKind
from tests.runtime.bus.members import Member, gathered, number_of, reply, request
from tests.transports.stage import LOOPS, run
from tests.wire.bus_frames import bus_frame


@contextmanager
def members(shards: int = 2, **options: Any) -> Iterator[list[Member]]:
    made = make_bus(shards, **options)
    opened = [Member(made.keep(member)) for member in range(shards)]
    try:
        yield opened
    finally:
        for each in opened:
            each.close()
        made.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no path is made of them


# Frames.


def test_frames_arrive_whole_and_in_order_from_every_member() -> None:
    """SH-11: each member sends to each other one; sizes around every boundary of the reader."""
    sizes = [0, 1, LARGE_FRAME_BYTES - 300, LARGE_FRAME_BYTES, READ_BYTES, MIB, 3]
    with members(3) as (first, second, third):
        for number, size in enumerate(sizes):
            assert first.send(2, *gathered(number + 1, bytes([number]) * size)) is None
            assert second.send(2, *gathered(number + 1, bytes([number + 100]) * size)) is None
        while len(third.frames) < 2 * len(sizes):
            for each in (first, second, third):
                each.turn()
        for sender, add in ((0, 0), (1, 100)):
            got = [frame for member, frame in third.frames if member == sender]
            assert [number_of(frame) for frame in got] == [*range(1, len(sizes) + 1)]
            bodies = [bytes(frame[HEADER_BYTES:]) for frame in got]
            assert bodies == [bytes([n + add]) * size for n, size in enumerate(sizes)]
            for frame in got:
                decode_bus(frame)
        assert first.events == second.events == []


def test_one_write_carries_the_frames_of_a_turn() -> None:
    with members() as (first, second):
        for number in range(1, 101):
            first.send(1, *gathered(number))
        first.bus.flush()
        assert first.bus.waiting(1) == (0, 0)
        second.turn()
        (event,) = second.events
        assert isinstance(event, BusFrames)
        assert [number_of(frame) for _, frame in event.frames] == [*range(1, 101)]
        assert second.announced == 1


def test_after_each_main_frame_comes_at_most_one_reply() -> None:
    """SH-20."""
    main = [(0, b"m1"), (0, b"m2")]
    replies = [(1, b"r1"), (1, b"r2"), (1, b"r3")]
    told = [frame for _, frame in interleave(main, replies)]
    assert told == [b"m1", b"r1", b"m2", b"r2", b"r3"]
    assert interleave(main, []) == tuple(main)
    assert interleave([], replies) == tuple(replies)
    assert [frame for _, frame in interleave(main, replies[:1])] == [b"m1", b"r1", b"m2"]


def test_replies_travel_beside_other_frames() -> None:
    """SH-11: a burst on the main lane does not keep replies away."""
    with members(inbox_capacity=16) as (first, second):
        second.send(0, *request(9))
        burst = 0
        while first.send(1, *gathered(burst + 1, bytes(MIB))) is None:
            first.bus.flush()  # Nobody reads: queue and socket fill up.
            burst += 1
        assert first.bus.waiting(1)[0] > 0
        first.turn()
        assert first.send(1, *reply(9)) is None
        first.bus.flush()
        assert first.bus.waiting(1)[1] == 0
        second.until(lambda: any(frame[60] == 33 for _, frame in second.frames))
        assert len(second.frames) <= burst


# Refusals.


def test_a_full_lane_refuses_before_the_first_byte() -> None:
    """SH-17: what was accepted arrives whole once the reader reads again."""
    body = bytes(range(256)) * 1024
    with members(inbox_capacity=8) as (first, second):
        accepted: list[int] = []
        refused: list[int] = []
        for number in range(1, 101):
            answer = first.send(1, *gathered(number, body))
            (accepted if answer is None else refused).append(number)
            if answer is not None:
                kind = int(FrameKind.GATHERED)
                assert answer == BusRefused(1, kind, 0, DropReason.FULL)
            first.turn()
        assert len(refused) > 50
        assert first.bus.waiting(1) == (8, 0)
        while len(second.frames) < len(accepted):
            first.turn()
            second.turn()
        assert [number_of(frame) for _, frame in second.frames] == accepted
        assert all(frame[HEADER_BYTES:] == body for _, frame in second.frames)
        assert first.bus.waiting(1) == (0, 0)
        assert first.send(1, *gathered(1)) is None


def test_a_member_that_does_not_exist_gets_nothing() -> None:
    """SH-14: the frame is refused, not sent to shard 0."""
    with members(3) as (first, second, third):
        for nobody in (3, 1, GATEWAY, 65_535):
            answer = second.send(nobody, *request(7))
            kind = int(FrameKind.FORWARDED_REQUEST)
            assert answer == BusRefused(nobody, kind, 7, DropReason.UNROUTABLE)
        for each in (second, first, third):
            each.turn()
        assert first.frames == third.frames == []


def test_the_place_of_a_reply_is_taken_with_its_request() -> None:
    """O4.3: so many requests wait for a reply as the lane of replies has places, no more."""
    with members(reply_inbox_capacity=3) as (home, owner):
        for ticket in (1, 2, 3):
            assert home.send(1, *request(ticket)) is None
        kind = int(FrameKind.FORWARDED_REQUEST)
        assert home.send(1, *request(4)) == BusRefused(1, kind, 4, DropReason.FULL)
        assert home.send(1, *gathered(1)) is None  # Other frames need no place.
        assert home.bus.places_taken(1) == 3
        home.turn()
        owner.turn()
        # Nothing of the owner's replies can be refused, whatever its main lane does.
        for ticket in (1, 2, 3):
            assert owner.send(0, *reply(ticket, b"answer")) is None
        owner.turn()
        home.turn()
        assert [number_of(frame) for _, frame in home.frames] == [1, 2, 3]
        assert home.bus.places_taken(1) == 0
        assert home.send(1, *request(4)) is None


def test_a_place_is_given_up_at_the_deadline_and_once() -> None:
    """O4.3: the reply that comes after all takes no place from another."""
    with members(reply_inbox_capacity=1) as (home, owner):
        home.send(1, *request(1))
        home.bus.release(ReleaseReply(1, 1))
        home.bus.release(ReleaseReply(9, 1))
        assert home.send(1, *request(2)) is None
        home.turn()
        owner.turn()
        owner.send(0, *reply(1))
        owner.turn()
        home.turn()
        assert home.bus.places_taken(1) == 1
        kind = int(FrameKind.FORWARDED_REQUEST)
        assert home.send(1, *request(3)) == BusRefused(1, kind, 3, DropReason.FULL)


def test_a_request_that_finds_the_main_lane_full_takes_no_place() -> None:
    with members(inbox_capacity=1) as (home, _):
        home.send(1, *gathered(1))
        kind = int(FrameKind.FORWARDED_REQUEST)
        assert home.send(1, *request(1)) == BusRefused(1, kind, 1, DropReason.FULL)
        assert home.bus.places_taken(1) == 0


def test_a_reply_without_a_place_may_be_refused() -> None:
    """SH-18: then it is counted like any other frame."""
    with members(reply_inbox_capacity=1) as (_, owner):
        assert owner.send(0, *reply(1)) is None
        kind = int(FrameKind.FORWARDED_REPLY)
        assert owner.send(0, *reply(2)) == BusRefused(0, kind, 2, DropReason.FULL)


# The end of a member.


def test_a_closed_end_refuses_and_is_reported_once() -> None:
    """SH-17: frames for it are refused as disconnected, what it sent before still arrives."""
    with members(3) as (first, second, third):
        first.send(1, *request(5))
        second.send(0, *gathered(1, bytes(MIB)))
        second.turn()
        second.send(0, *gathered(2))
        second.turn()
        while second.bus.waiting(0) != (0, 0):
            first.turn()
            second.turn()
        second.close()
        first.until(lambda: bool(first.events) and isinstance(first.events[-1], MemberLost))
        assert [number_of(frame) for _, frame in first.frames] == [1, 2]
        first.turn()
        lost = [event for event in first.events if isinstance(event, MemberLost)]
        assert [event.member for event in lost] == [1]
        assert first.send(1, *request(6)) == BusRefused(
            1, int(FrameKind.FORWARDED_REQUEST), 6, DropReason.DISCONNECTED
        )
        assert first.bus.places_taken(1) == 0
        assert first.bus.waiting(1) == (0, 0)
        assert first.loop.watched() == 2  # the lanes of the third alone
        assert first.send(2, *gathered(3)) is None
        first.turn()
        third.turn()
        assert len(third.frames) == 1


def test_a_write_to_a_closed_end_takes_what_it_had_sent() -> None:
    with members() as (first, second):
        second.send(0, *gathered(1))
        second.send(0, *reply(2))
        second.turn()
        second.close()
        first.send(1, *gathered(1))
        first.bus.flush()
        events = first.bus.take_events()
        assert isinstance(events[0], BusFrames)
        assert [number_of(frame) for _, frame in events[0].frames] == [1, 2]
        assert events[1:] == [MemberLost(1, "Broken pipe")]


def test_an_end_that_closes_with_unread_frames_loses_none_of_its_own() -> None:
    """The system reports a reset then; it comes behind the data."""
    with members() as (first, second):
        first.send(1, *gathered(1))
        first.turn()
        second.send(0, *gathered(2))
        second.bus.flush()
        second.close()
        first.until(lambda: any(isinstance(event, MemberLost) for event in first.events))
        assert [number_of(frame) for _, frame in first.frames] == [2]


def test_last_bytes_that_are_no_frame_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    made = make_bus(2)
    first = Member(made.keep(0))
    try:
        lane = made.ends(1).lanes[0]
        assert lane is not None
        os.write(lane.reply, bytes(300))
        made.release(1)
        first.send(1, *gathered(1))
        first.bus.flush()
        assert first.bus.take_events() == [MemberLost(1, "Broken pipe")]
        assert "the last bytes of member 1: frame of 0 bytes" in caplog.text
    finally:
        first.close()
        made.close()


def test_frames_that_are_sent_before_the_loop_runs_leave_with_it() -> None:
    made = make_bus(2)
    early, late = Bus(made.keep(0)), Member(made.keep(1))
    try:
        for number in range(1, 11):
            early.send(SendToMember(1, gathered(number, bytes(MIB))))
        early.flush()  # More than the socket takes.
        assert early.waiting(1)[0] > 0
        while len(late.frames) < 10:
            early.flush()
            late.turn()
        assert early.waiting(1) == (0, 0)
    finally:
        early.close()
        late.close()
        made.close()


@pytest.mark.parametrize(
    ("prefix", "frame", "text"),
    [
        (encode_prefix(300, target=0, sender=1)[:4] + b"\0\0\7\0", bytes(300), "member 7"),
        (bytes(8), b"", "frame of 0 bytes"),
        (b"\xff" * 8, b"", "frame of 4294967295 bytes"),
        (encode_prefix(256, target=0, sender=1), bus_frame(41), "kind 41 on the wrong lane"),
        (encode_prefix(512, target=0, sender=1), bus_frame(33), "kind 33 on the wrong lane"),
    ],
)
def test_a_breach_closes_the_lanes_of_that_member(
    prefix: bytes, frame: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = make_bus(2)
    first = Member(made.keep(0))
    try:
        lane = made.ends(1).lanes[0]
        assert lane is not None
        os.write(lane.main, encode_prefix(256, target=0, sender=1) + bus_frame(42))
        os.write(lane.main, prefix + frame)
        first.until(lambda: len(first.events) == 2)
        frames, lost = first.events
        assert isinstance(frames, BusFrames)
        assert isinstance(lost, MemberLost)
        assert text in lost.cause
        assert text in caplog.text
    finally:
        first.close()
        made.close()


def test_only_replies_travel_on_the_reply_lane(caplog: pytest.LogCaptureFixture) -> None:
    """SH-11."""
    made = make_bus(2)
    first = Member(made.keep(0))
    try:
        lane = made.ends(1).lanes[0]
        assert lane is not None
        os.write(lane.reply, encode_prefix(256, target=0, sender=1) + bus_frame(49))
        first.until(lambda: bool(first.events))
        assert isinstance(first.events[0], MemberLost)
        assert "kind 49 on the wrong lane" in caplog.text
    finally:
        first.close()
        made.close()


def test_a_frame_for_another_member_is_dropped_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SH-15: at the entry, with an error; the lane goes on."""
    made = make_bus(3)
    first = Member(made.keep(0))
    try:
        lane = made.ends(1).lanes[0]
        assert lane is not None
        os.write(lane.main, encode_prefix(256, target=2, sender=1) + bus_frame(49))
        os.write(lane.main, encode_prefix(256, target=0, sender=1) + bus_frame(42))
        first.turn()
        frames, lost = first.events
        assert isinstance(frames, BusFrames)
        assert [frame[60] for _, frame in frames.frames] == [42]
        assert lost == FrameLost(1, 49, DropReason.MISROUTED)
        assert "from member 1 for member 2 arrived at member 0" in caplog.text
    finally:
        first.close()
        made.close()


# Ends.


def test_lanes_in_the_wrong_order_are_refused() -> None:
    """SH-15: lane i leads to member i."""
    made = make_bus(3)
    ends = made.ends(0)
    none, first, second = ends.lanes
    try:
        for lanes in (
            (none, second, first),
            (first, none, second),
            (none, first, None),
            (none, first, made.ends(1).lanes[2]),
        ):
            with pytest.raises(ValueError, match=r"lane [012] of member 0 must lead to member"):
                BusEnds(0, (0, 1, 2), lanes)
        with pytest.raises(ValueError, match="member 0 of 3 has 2 lanes"):
            BusEnds(0, (0, 1, 2), (none, first))
        with pytest.raises(ValueError, match="member 5 of 3"):
            BusEnds(5, (0, 1, 2), ends.lanes)
        with pytest.raises(ValueError, match="one descriptor for two lanes"):
            BusEnds(0, (0, 1), (None, LaneEnd(0, 1, 5, 5)))
    finally:
        made.close()


@pytest.mark.parametrize("frames", [0, -1, CAPACITY_MAX + 1])
def test_a_bound_outside_its_range_is_refused(frames: int) -> None:
    """SH-11: zero is no bound."""
    with pytest.raises(ValueError, match=rf"inbox_capacity is {frames}, allowed 1 to 1048576"):
        make_bus(2, inbox_capacity=frames)
    with pytest.raises(ValueError, match=rf"reply_inbox_capacity is {frames}"):
        make_bus(2, reply_inbox_capacity=frames)
    check_capacity("x", 1)
    check_capacity("x", CAPACITY_MAX)


@pytest.mark.parametrize("shards", [0, 1, 65_535])
def test_one_shard_has_no_bus(shards: int) -> None:
    with pytest.raises(ValueError, match="have no bus"):
        make_bus(shards)


def test_a_gateway_is_a_member_without_sockets_to_hand_over() -> None:
    """O5.3: even beside one shard."""
    made = make_bus(1, has_gateway=True)
    try:
        assert made.ends(GATEWAY).members == (0, GATEWAY)
        assert len(made.descriptors(0)) == 2
        shard, gateway = Member(made.keep(0)), Member(made.keep(GATEWAY))
        gateway.send(0, *request(1))
        gateway.turn()
        shard.turn()
        assert [sender for sender, _ in shard.frames] == [GATEWAY]
        shard.close()
        gateway.close()
    finally:
        made.close()


def test_ends_are_described_in_one_line() -> None:
    made = make_bus(3, inbox_capacity=7, frame_bytes_max=MIB)
    try:
        for member in range(3):
            ends = made.ends(member)
            assert "\n" not in ends.to_text()
            assert read_ends(ends.to_text()) == ends
            assert sorted(ends.descriptors()) == sorted(made.descriptors(member))
    finally:
        made.close()


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"member":0,"members":[0,1],"lanes":[null,null]}', '{"member":"x"}', "nul"],
)
def test_a_text_that_describes_no_ends_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        read_ends(text)


def test_nothing_of_a_bus_stays_open() -> None:
    before = open_descriptors()
    made = make_bus(4, has_gateway=True)
    assert open_descriptors() == before + 2 * (2 * 10 + 3)
    made.release(2)
    made.release(2)
    assert open_descriptors() == before + 2 * (2 * 10 + 3) - 2 * 4 - 1
    bus = Bus(made.keep(0))
    bus.take_handover(1).close()
    bus.close()
    made.close()
    assert open_descriptors() == before


def test_a_failure_while_sockets_are_made_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    pairs: list[object] = []

    def make_few(*args: Any) -> tuple[socket.socket, socket.socket]:
        if len(pairs) == 5:
            raise OSError(24, "Too many open files")
        pairs.append(args)
        return real(*args)

    real = socket.socketpair
    monkeypatch.setattr(socket, "socketpair", make_few)
    with pytest.raises(OSError, match="Too many open files"):
        make_bus(3)
    assert open_descriptors() == before


def test_a_descriptor_that_is_no_lane_is_refused() -> None:
    made = make_bus(3)
    before = open_descriptors()
    for wrong, text in (
        (os.open("/dev/null", os.O_RDONLY), "is no socket"),
        (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach(), "no SOCK_STREAM pair"),
        (99_999, "Bad file descriptor"),
    ):
        ends = made.ends(0)
        none, first, second = ends.lanes
        assert first is not None
        assert second is not None
        copies = [
            LaneEnd(each.own, each.peer, os.dup(each.main), os.dup(each.reply))
            for each in (first, second)
        ]
        os.close(copies[1].reply)
        broken = LaneEnd(0, 2, copies[1].main, wrong)
        with pytest.raises(ValueError, match=text):
            Bus(BusEnds(0, (0, 1, 2), (none, copies[0], broken)))
        with suppress(OSError):
            os.close(wrong)  # The others were taken up, and are closed.
    assert open_descriptors() == before
    made.close()


# The two directions of a lane alone.


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(HEADER_BYTES, 3 * LARGE_FRAME_BYTES), min_size=1, max_size=4),
    st.lists(st.one_of(st.integers(1, 600), st.integers(1, 100_000)), max_size=30),
)
def test_any_pieces_of_the_stream_give_the_same_frames(sizes: list[int], pieces: list[int]) -> None:
    frames = [bytes([index]) * size for index, size in enumerate(sizes)]
    stream = b"".join(encode_prefix(len(frame), target=2, sender=1) + frame for frame in frames)
    sending, receiving = socket.socketpair()
    taken: list[bytes] = []
    with sending, receiving:
        sending.settimeout(0)
        receiving.settimeout(0)
        reader = LaneReader(
            receiving,
            bytearray(READ_BYTES),
            lambda target, frame: taken.append(bytes([target]) + frame),
            sender=1,
            frame_bytes_max=MIB,
        )
        position, turn = 0, 0
        while position < len(stream):
            piece = pieces[turn] if turn < len(pieces) else READ_BYTES
            position += sending.send(stream[position : position + piece])
            assert reader.read()
            turn += 1
        sending.close()
        assert not reader.read()
    assert taken == [b"\2" + frame for frame in frames]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 200 * KIB), min_size=1, max_size=20))
def test_partial_writes_lose_and_repeat_nothing(sizes: list[int]) -> None:
    sending, receiving = socket.socketpair()
    with sending, receiving:
        sending.settimeout(0)
        receiving.settimeout(0)
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
        queue = SendQueue(sending, 100)
        for index, size in enumerate(sizes):
            assert queue.put(
                size + 9, (b"prefix", bytes([index]), bytes([index]) * size, b"", b"ab")
            )
        got = bytearray()
        while not queue.flush():
            got += receiving.recv(MIB)
        assert len(queue) == 0
        sending.close()
        while piece := receiving.recv(MIB):
            got += piece
    wanted = (b"prefix" + bytes([n]) * (size + 1) + b"ab" for n, size in enumerate(sizes))
    assert got == b"".join(wanted)


def test_a_stream_that_ends_within_a_frame_gives_nothing_of_it() -> None:
    sending, receiving = socket.socketpair()
    taken: list[bytearray] = []
    with sending, receiving:
        receiving.settimeout(0)
        reader = LaneReader(
            receiving,
            bytearray(READ_BYTES),
            lambda _, frame: taken.append(frame),
            sender=1,
            frame_bytes_max=MIB,
        )
        assert reader.read()
        sending.send(encode_prefix(MIB, target=2, sender=1) + bytes(1000))
        sending.close()
        assert reader.read()
        assert not reader.read()
        reader.drain()
    assert taken == []


def test_a_large_size_allocates_nothing_over_the_bound() -> None:
    sending, receiving = socket.socketpair()
    with sending, receiving:
        receiving.settimeout(0)
        reader = LaneReader(
            receiving, bytearray(READ_BYTES), lambda *_: None, sender=1, frame_bytes_max=MIB
        )
        sending.send(encode_prefix(MIB + 1, target=2, sender=1))
        with pytest.raises(RemoteError, match="frame of 1048577 bytes, allowed 256 to 1048576"):
            reader.read()
    assert PREFIX_BYTES == 8


# With a pump.


PLACES = 150


class Echo:
    """A core that answers every forwarded request."""

    def __init__(self, asks: int = 0) -> None:
        self.asks = asks
        self.got: list[int] = []
        self.is_answered = asyncio.Event()
        self.others: list[object] = []

    def start(self) -> list[object]:
        return [SendToMember(1, request(ticket + 1, bytes(ticket))) for ticket in range(self.asks)]

    def step(self, event: object) -> list[object]:
        effects: list[object] = []
        if isinstance(event, BusFrames):
            for sender, frame in event.frames:
                if frame[60] == FrameKind.FORWARDED_REQUEST:
                    effects.append(SendToMember(sender, reply(number_of(frame))))
                else:
                    self.got.append(number_of(frame))
        elif not isinstance(event, Ticked):
            self.others.append(event)
        if len(self.got) == PLACES:
            self.is_answered.set()
        return effects


@pytest.mark.parametrize("loop", LOOPS)
def test_a_pump_carries_frames_both_ways(loop: str) -> None:
    """SH-17, SH-20: effects go out at the end of a turn, frames come in as one event."""

    async def main() -> None:
        made = make_bus(2, reply_inbox_capacity=PLACES)
        asker, owner = Echo(asks=PLACES + 50), Echo()
        buses = [Bus(made.keep(member)) for member in range(2)]
        pumps = [Pump(), Pump()]
        for bus, pump in zip(buses, pumps, strict=True):
            bus.attach(asyncio.get_running_loop(), pump.ask)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            for core, bus, pump in zip((asker, owner), buses, pumps, strict=True):
                handlers: dict[type, Callable[[Any], object | None]] = {SendToMember: bus.send}
                running = pump.run(core, carry_out=handlers, worlds=[bus], ends_turn=bus.flush)
                tasks.create_task(running)
            await asker.is_answered.wait()
            for pump in pumps:
                pump.stop()
        assert asker.got == [*range(1, PLACES + 1)]
        # What found no place was refused at once, as events.
        refused = [event for event in asker.others if isinstance(event, BusRefused)]
        assert [event.ticket for event in refused] == [*range(PLACES + 1, PLACES + 51)]
        for bus in buses:
            bus.close()
        made.close()

    run(loop, main())
