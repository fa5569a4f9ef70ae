"""A connection that is not read, and what makes it read again; nothing is lost."""

import socket
from collections.abc import Callable

import pytest

from headrace.base.limits import KIB, MIB
from headrace.ports.network import SendToConnection
from headrace.transports.connection import FULL, IN_FLIGHT, PAUSED, ROOM, SENDING
from headrace.transports.limits import TcpLimits
from tests.transports.stage import (
    LOOPS,
    Stage,
    blocked_of,
    declare,
    frame_of,
    mark_of,
    reason_of,
    receive,
    run,
    send,
    settle,
    unsent_of,
)

pytestmark = pytest.mark.parametrize("loop", LOOPS)


def has_frames(stage: Stage, count: int) -> Callable[[], bool]:
    return lambda: len(stage.frames) == count


def test_no_more_requests_are_taken_than_may_be_in_flight(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(requests_in_flight_max=4)) as stage:
            client = await stage.connect()
            await send(client, b"".join(frame_of(300, mark) for mark in range(10)))
            await stage.until(lambda: len(stage.frames) == 4)
            await settle()
            assert len(stage.frames) == 4
            assert blocked_of(stage, 1) == IN_FLIGHT
            stage.listener.send(SendToConnection(1, (declare(256),)))
            stage.listener.flush()
            assert blocked_of(stage, 1) == IN_FLIGHT  # Down to half of it first.
            await settle()
            assert len(stage.frames) == 4
            stage.listener.send(SendToConnection(1, (declare(256),)))
            stage.listener.flush()
            await stage.until(lambda: len(stage.frames) == 6)
            await settle()
            assert len(stage.frames) == 6
            assert blocked_of(stage, 1) == IN_FLIGHT
            stage.echo_marks()
            stage.listener.send(SendToConnection(1, (declare(256),)))
            stage.listener.send(SendToConnection(1, (declare(256),)))
            stage.listener.flush()
            await stage.until(lambda: len(stage.frames) == 10)
            assert [mark_of(frame) for _, frame in stage.frames] == list(range(10))
            assert blocked_of(stage, 1) == 0
            await send(client, frame_of(256, 10))
            await stage.until(lambda: len(stage.frames) == 11)

    run(loop, main())


def test_pause_and_resume(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            stage.listener.pause_all()
            late = await stage.connect()
            await send(client, frame_of(300, 1))
            await send(late, frame_of(300, 2))
            await settle()
            assert stage.frames == []
            assert blocked_of(stage, 1) == blocked_of(stage, 2) == PAUSED
            stage.listener.resume_all()
            await stage.until(lambda: len(stage.frames) == 2)
            assert sorted(mark_of(frame) for _, frame in stage.frames) == [1, 2]

    run(loop, main())


def test_who_is_not_read_has_no_deadline(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(first_frame_seconds=1, login_seconds=1, frame_seconds=1)
        async with Stage(limits) as stage:
            client = await stage.connect(log_in=False)
            await send(client, frame_of(300)[:100])
            await settle()
            stage.listener.pause_all()
            for _ in range(5):
                stage.listener.sweep()
            await settle()
            assert stage.closed == []
            stage.listener.resume_all()
            await send(client, frame_of(300)[100:])
            await stage.until(lambda: len(stage.frames) == 1)

    run(loop, main())


def test_a_slow_reader_is_not_read_from_and_loses_nothing(loop: str) -> None:
    """NW10: back-pressure."""

    async def main() -> None:
        async with Stage(TcpLimits(send_bytes_high=KIB)) as stage:
            client = await stage.connect()
            reply = frame_of(16 * MIB)
            stage.listener.send(SendToConnection(1, (reply,)))
            stage.listener.flush()
            assert blocked_of(stage, 1) == SENDING
            await send(client, frame_of(300))
            await settle()
            assert stage.frames == []
            assert await receive(client, len(reply)) == reply
            await stage.until(lambda: len(stage.frames) == 1)
            assert blocked_of(stage, 1) == 0

    run(loop, main())


def test_a_slow_reader_is_closed_at_the_bound(loop: str) -> None:
    """NW10: disconnect, with bounded memory."""

    async def main() -> None:
        limits = TcpLimits(send_bytes_high=KIB, send_bytes_max=20 * MIB)
        async with Stage(limits) as stage:
            await stage.connect()
            for _ in range(5):
                stage.listener.send(SendToConnection(1, (bytes(8 * MIB),)))
                stage.listener.flush()
            assert reason_of(stage, 1).endswith(f"limit {20 * MIB}")
            await stage.until(lambda: stage.closed == [1])

    run(loop, main())


def test_the_core_is_told_of_replies_that_wait_and_that_have_left(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(replies_bytes_max=64 * MIB)) as stage:
            client = await stage.connect()
            stage.listener.send(SendToConnection(1, (declare(256), bytes(100))))
            stage.listener.flush()
            assert stage.written == []  # too little to speak of
            await receive(client, 356)
            stage.listener.send(SendToConnection(1, (declare(256), bytes(16 * MIB))))
            stage.listener.flush()
            (told,) = stage.written
            assert told.written_bytes == 612 + 16 * MIB
            assert told.waiting_bytes == unsent_of(stage, 1) == stage.listener.sending.waiting_bytes
            assert told.waiting_bytes > 8 * MIB
            await receive(client, 9 * MIB)
            await stage.until(lambda: unsent_of(stage, 1) < told.waiting_bytes - MIB)
            stage.listener.sweep()
            assert stage.written[-1].waiting_bytes <= told.waiting_bytes - MIB
            await receive(client, 7 * MIB + 256)
            await stage.until(lambda: stage.listener.sending.waiting_bytes == 0)
            assert stage.written[-1].waiting_bytes < MIB

    run(loop, main())


def test_a_lost_connection_takes_what_waits_with_it(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(replies_bytes_max=64 * MIB)) as stage:
            client = await stage.connect()
            stage.listener.send(SendToConnection(1, (declare(256), bytes(16 * MIB))))
            stage.listener.flush()
            assert stage.written[-1].waiting_bytes > 0
            client.close()
            await stage.until(lambda: stage.closed == [1])
            assert stage.written[-1].waiting_bytes == 0

    run(loop, main())


async def take_some(stage: Stage, client: socket.socket) -> None:
    """Read, until the listener could write on: the system itself holds some megabytes."""
    before = unsent_of(stage, 1)
    await receive(client, 4 * MIB)
    await stage.until(lambda: unsent_of(stage, 1) < before)


def test_a_reader_that_takes_nothing_is_closed_in_time(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(send_seconds=2)) as stage:
            client = await stage.connect()
            stage.listener.send(SendToConnection(1, (bytes(16 * MIB),)))
            stage.listener.flush()
            for _ in range(3):  # It takes something in each period: it is slow, not dead.
                stage.listener.sweep()
                await take_some(stage, client)
                stage.listener.send(SendToConnection(1, (bytes(8 * MIB),)))
                stage.listener.flush()
                stage.listener.sweep()
                await settle()
                stage.listener.sweep()
            assert stage.closed == []
            assert reason_of(stage, 1) == ""
            for _ in range(6):
                stage.listener.sweep()
            assert "the peer takes none" in reason_of(stage, 1)
            await stage.until(lambda: stage.closed == [1])

    run(loop, main())


def test_a_large_frame_waits_for_memory_and_holds_up_large_ones_alone(loop: str) -> None:
    """SE-7: what trickles in stops nobody whose frames are small."""

    async def main() -> None:
        limits = TcpLimits(receive_bytes_max=4 * MIB, frame_bytes_max=3 * MIB)
        async with Stage(limits) as stage:
            first, second, third, fourth = [await stage.connect() for _ in range(4)]
            frame = frame_of(3 * MIB)
            await send(first, frame[:300])
            await stage.until(lambda: stage.listener.memory.held_bytes == 3 * MIB)
            await send(second, frame[:300])
            await stage.until(lambda: blocked_of(stage, 2) == ROOM)
            assert blocked_of(stage, 1) == 0  # It has its memory.
            await send(third, frame_of(64 * KIB)[:300])
            await stage.until(lambda: blocked_of(stage, 3) == ROOM)  # It must not overtake.
            for mark in range(3):
                await send(fourth, frame_of(60_000, mark))
                await stage.until(has_frames(stage, mark + 1))
            assert blocked_of(stage, 4) == 0
            await send(first, frame[300:])
            await stage.until(lambda: blocked_of(stage, 2) == 0)
            assert blocked_of(stage, 3) == ROOM  # The share of large frames is used up again.
            await send(second, frame[300:])
            await send(third, frame_of(64 * KIB)[300:])
            await stage.until(lambda: len(stage.frames) == 6)
            assert stage.listener.memory.held_bytes == stage.listener.memory.large_bytes == 0
            large = [number for number, each in stage.frames if len(each) >= 64 * KIB]
            assert large == [1, 2, 3]

    run(loop, main())


def test_memory_goes_round_in_order(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(receive_bytes_max=4 * MIB, frame_bytes_max=3 * MIB)
        async with Stage(limits) as stage:
            first, second = [await stage.connect() for _ in range(2)]
            frame = frame_of(3 * MIB)
            await send(first, frame[:300])
            await stage.until(lambda: stage.listener.memory.held_bytes == 3 * MIB)
            await send(second, frame[:300])
            await stage.until(lambda: blocked_of(stage, 2) == ROOM)
            await send(first, frame[300:] + frame[:300])  # It wants memory again at once.
            await stage.until(lambda: blocked_of(stage, 1) == ROOM)
            assert blocked_of(stage, 2) == 0
            await send(second, frame[300:])
            await send(first, frame[300:])
            await stage.until(lambda: len(stage.frames) == 3)
            assert [number for number, _ in stage.frames] == [1, 2, 1]

    run(loop, main())


def test_a_lost_connection_gives_its_memory_to_who_waits(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(receive_bytes_max=4 * MIB, frame_bytes_max=3 * MIB)
        async with Stage(limits) as stage:
            first, second = [await stage.connect() for _ in range(2)]
            await send(first, declare(3 * MIB))
            await stage.until(lambda: stage.listener.memory.held_bytes == 3 * MIB)
            await send(second, frame_of(2 * MIB)[:300])
            await stage.until(lambda: blocked_of(stage, 2) == ROOM)
            first.close()
            await stage.until(lambda: blocked_of(stage, 2) == 0)
            await send(second, frame_of(2 * MIB)[300:])
            await stage.until(lambda: len(stage.frames) == 1)

    run(loop, main())


def test_who_is_closed_while_waiting_takes_no_memory(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(receive_bytes_max=4 * MIB, frame_bytes_max=3 * MIB)
        async with Stage(limits) as stage:
            first, second = [await stage.connect() for _ in range(2)]
            await send(first, frame_of(3 * MIB)[:300])
            await stage.until(lambda: stage.listener.memory.held_bytes == 3 * MIB)
            await send(second, declare(2 * MIB))
            await stage.until(lambda: blocked_of(stage, 2) == ROOM)
            stage.listener.close_connection(2, "evicted")
            await stage.until(lambda: stage.closed == [2])
            await send(first, frame_of(3 * MIB)[300:])
            await stage.until(lambda: len(stage.frames) == 1)
            assert stage.listener.memory.held_bytes == 0
            assert blocked_of(stage, 1) == 0

    run(loop, main())


def test_small_frames_that_are_not_finished_count_too(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(receive_bytes_max=100_000, frame_bytes_max=70_000)
        async with Stage(limits) as stage:
            first, second = [await stage.connect() for _ in range(2)]
            frame = frame_of(60_000)
            await send(first, frame[:300])
            await stage.until(lambda: len(stage.listener.unfinished) == 1)
            assert stage.listener.memory.held_bytes == 0  # A header is not worth it.
            await send(first, frame[300:30_000])
            await stage.until(lambda: stage.listener.memory.held_bytes == 60_000)
            await send(second, frame[:30_000])
            await stage.until(lambda: blocked_of(stage, 2) == ROOM | FULL)
            await send(first, frame[30_000:])
            await send(second, frame[30_000:])
            await stage.until(lambda: len(stage.frames) == 2)
            assert [each for _, each in stage.frames] == [frame, frame]
            assert stage.listener.memory.held_bytes == 0

    run(loop, main())


def test_reading_stops_when_all_together_hold_too_much(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(receive_bytes_max=MIB, frame_bytes_max=MIB // 2)
        async with Stage(limits) as stage:
            client, other = [await stage.connect() for _ in range(2)]
            listener = stage.listener
            listener.memory.turn_bytes = MIB  # As if this turn had brought so much.
            client.send(frame_of(300, 1))
            is_seen = []
            stage.answer = lambda *_: is_seen.append(blocked_of(stage, 2))
            await stage.until(lambda: len(stage.frames) == 1)
            assert is_seen == [FULL]
            assert blocked_of(stage, 1) == blocked_of(stage, 2) == 0  # The turn is over.
            await send(other, frame_of(300, 2))
            await stage.until(lambda: len(stage.frames) == 2)

    run(loop, main())
