"""Clients that are slow or many: bounds on their time and their number."""

from contextlib import suppress

import pytest

from headrace.base.limits import KIB, MIB
from headrace.transports.limits import TcpLimits
from tests.transports.stage import (
    LOOPS,
    Stage,
    frame_of,
    is_cut_off,
    mark_of,
    receive,
    run,
    send,
    settle,
)

pytestmark = pytest.mark.parametrize("loop", LOOPS)

# Time.


def test_the_first_frame_has_a_deadline(loop: str) -> None:
    """NW11: a handshake byte by byte."""

    async def main() -> None:
        limits = TcpLimits(first_frame_seconds=3)
        async with Stage(limits) as stage:
            loris = await stage.connect(log_in=False)
            healthy = await stage.connect(log_in=False)
            await send(healthy, frame_of(256))
            for byte in frame_of(256)[:4]:
                await send(loris, bytes([byte]))
                await settle()
                stage.listener.sweep()
            assert await is_cut_off(loris)
            await stage.until(lambda: stage.closed == [1])
            assert stage.listener.connection(2) is not None

    run(loop, main())


def test_login_has_a_deadline(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(login_seconds=2)) as stage:
            stranger = await stage.connect(log_in=False)
            await stage.connect()
            await send(stranger, frame_of(256))
            await stage.until(lambda: len(stage.frames) == 1)
            for _ in range(3):
                stage.listener.sweep()
            assert await is_cut_off(stranger)
            await stage.until(lambda: stage.closed == [1])
            assert stage.listener.connection(2) is not None

    run(loop, main())


def test_a_frame_that_does_not_finish_is_given_up(loop: str) -> None:
    """NW11: a frame byte by byte, after login."""

    async def main() -> None:
        async with Stage(TcpLimits(frame_seconds=1)) as stage:
            loris = await stage.connect()
            await send(loris, frame_of(300))
            await send(loris, frame_of(300)[:100])
            await stage.until(lambda: len(stage.listener.unfinished) == 1)
            for byte in range(100, 104):
                with suppress(ConnectionError):  # At last it is cut off.
                    await send(loris, frame_of(300)[byte : byte + 1])
                await settle()
                stage.listener.sweep()
            assert await is_cut_off(loris)
            await stage.until(lambda: stage.closed == [1])

    run(loop, main())


def test_frames_that_finish_may_be_cut_anywhere(loop: str) -> None:
    """To be always in the middle of some frame is no fault."""

    async def main() -> None:
        async with Stage(TcpLimits(frame_seconds=1)) as stage:
            client = await stage.connect()
            await send(client, frame_of(300)[:150])
            await stage.until(lambda: len(stage.listener.unfinished) == 1)
            for count in range(1, 8):
                await send(client, frame_of(300)[150:] + frame_of(300)[:150])
                await stage.until(lambda count=count: len(stage.frames) == count)  # type: ignore[misc]
                stage.listener.sweep()
            await settle()
            assert stage.closed == []

    run(loop, main())


def test_a_large_frame_that_grows_is_not_given_up(loop: str) -> None:
    async def main() -> None:
        limits = TcpLimits(frame_seconds=1, frame_progress_bytes_min=64 * KIB)
        async with Stage(limits) as stage:
            client = await stage.connect()
            frame = frame_of(MIB)
            step = 128 * KIB
            for at in range(0, MIB, step):
                await send(client, frame[at : at + step])
                await stage.until(
                    lambda: bool(stage.frames) or stage.listener.memory.held_bytes == MIB
                )
                await settle()
                stage.listener.sweep()
            await stage.until(lambda: len(stage.frames) == 1)
            for _ in range(5):
                stage.listener.sweep()
            assert stage.closed == []
            assert len(stage.listener.unfinished) == 0

    run(loop, main())


def test_a_crowd_of_slow_ones_does_not_stop_a_healthy_client(loop: str) -> None:
    """NW11."""

    async def main() -> None:
        async with Stage() as stage:
            stage.echo_marks()
            crowd = [await stage.connect(log_in=False) for _ in range(60)]
            healthy = await stage.connect()
            for byte in frame_of(256)[:5]:
                for loris in crowd:
                    loris.send(bytes([byte]))
                await send(healthy, frame_of(700, 9))
                assert mark_of(await receive(healthy, 256)) == 9
            for _ in range(12):
                stage.listener.sweep()
            await stage.until(lambda: len(stage.closed) == 60)
            await send(healthy, frame_of(700, 10))
            assert mark_of(await receive(healthy, 256)) == 10

    run(loop, main())


# Numbers.


@pytest.mark.parametrize(
    "limits",
    [TcpLimits(connections_max=3), TcpLimits(connections_per_address_max=3)],
    ids=["all", "per address"],
)
def test_connections_over_the_limit_are_refused(loop: str, limits: TcpLimits) -> None:
    """NW12."""

    async def main() -> None:
        async with Stage(limits) as stage:
            stage.echo_marks()
            clients = [await stage.connect() for _ in range(3)]
            for _ in range(20):
                assert await is_cut_off(await stage.attempt())
            assert stage.listener.refused_count == 20
            assert len(stage.opened) == 3
            await send(clients[0], frame_of(300, 7))
            assert mark_of(await receive(clients[0], 256)) == 7
            clients[1].close()
            await stage.until(lambda: stage.closed == [2])
            await stage.connect()
            assert stage.opened[-1].connection == 4  # A number is not used again.

    run(loop, main())


def test_an_address_gets_its_places_back(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(connections_per_address_max=1)) as stage:
            for count in range(1, 4):
                client = await stage.connect()
                client.close()
                await stage.until(lambda count=count: len(stage.closed) == count)  # type: ignore[misc]

    run(loop, main())


def test_too_many_strangers_cost_the_oldest_silent_one_its_place(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(connections_before_login_max=2)) as stage:
            speaker = await stage.connect(log_in=False)
            await send(speaker, frame_of(256))
            await stage.until(lambda: len(stage.frames) == 1)
            silent = await stage.connect(log_in=False)
            await stage.connect(log_in=False)
            assert await is_cut_off(silent)
            await stage.until(lambda: stage.closed == [2])
            stage.listener.set_logged_in(1)
            await stage.connect(log_in=False)
            await settle()
            assert stage.closed == [2]

    run(loop, main())


def test_who_has_logged_out_is_a_stranger_again(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(login_seconds=1)) as stage:
            client, idle = [await stage.connect() for _ in range(2)]
            await send(client, frame_of(MIB)[:300])
            await stage.until(lambda: stage.listener.memory.held_bytes == MIB)
            stage.listener.set_logged_out(1)
            stage.listener.set_logged_out(2)
            await send(client, frame_of(MIB)[300:])  # What has begun may end.
            await stage.until(lambda: len(stage.frames) == 1)
            await send(client, frame_of(65 * KIB)[:300])
            assert await is_cut_off(client)
            for _ in range(3):
                stage.listener.sweep()
            assert await is_cut_off(idle)
            await stage.until(lambda: stage.closed == [1, 2])

    run(loop, main())


def test_a_flood_of_strangers_leaves_no_more_than_may_be(loop: str) -> None:
    """NW12."""

    async def main() -> None:
        async with Stage(TcpLimits(connections_before_login_max=3)) as stage:
            for _ in range(20):
                await stage.attempt()
            await stage.until(lambda: len(stage.closed) == 17)
            assert len(stage.listener.unknown) == 3
            assert stage.closed == list(range(1, 18))

    run(loop, main())
