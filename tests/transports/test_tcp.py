"""The listener on real loopback sockets: frames in, replies out, beginning and end."""

import asyncio
import errno
import socket
import tracemalloc

import pytest

from headrace.base.connection_numbers import make_connection_id
from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES, MIB
from headrace.ports.network import SendToConnection
from headrace.transports.limits import FRAME_BYTES_MAX_BEFORE_LOGIN, TcpLimits
from headrace.transports.slabs import SLAB_BYTES
from headrace.transports.tcp import TcpListener
from headrace.wire.numbers import Transport
from tests.transports.stage import (
    LOOPS,
    Stage,
    declare,
    frame_of,
    is_cut_off,
    mark_of,
    receive,
    run,
    send,
    settle,
)

pytestmark = pytest.mark.parametrize("loop", LOOPS)

# Frames.


def test_frames_split_at_every_byte_of_the_header(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            for split in range(1, HEADER_BYTES + 1):
                frame = frame_of(300, split)
                await send(client, frame[:split])
                await settle()
                await send(client, frame[split:])
                await stage.until(lambda split=split: len(stage.frames) == split)  # type: ignore[misc]
            assert [frame for _, frame in stage.frames] == [
                frame_of(300, split) for split in range(1, HEADER_BYTES + 1)
            ]

    run(loop, main())


def test_many_frames_in_one_write_come_in_their_order(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(requests_in_flight_max=10_000)) as stage:
            client = await stage.connect()
            frames = [frame_of(256 + mark % 700, mark) for mark in range(1000)]
            await send(client, b"".join(frames))
            await stage.until(lambda: len(stage.frames) == 1000)
            assert [frame for _, frame in stage.frames] == frames
            assert max(stage.turns) > 100

    run(loop, main())


def test_frames_of_a_mebibyte(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            frames = [frame_of(size, size) for size in (MIB, 300, MIB + 17, 100_000, MIB)]
            await send(client, b"".join(frames))
            await stage.until(lambda: len(stage.frames) == len(frames))
            assert [frame for _, frame in stage.frames] == frames
            assert all(type(frame) is bytearray for _, frame in stage.frames)

    run(loop, main())


def test_one_turn_gathers_the_frames_of_all_connections(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            clients = [await stage.connect() for _ in range(8)]
            stage.turns.clear()
            for client in clients:
                client.send(frame_of(700))  # All at once: the loop reads none of them in between.
            await stage.until(lambda: len(stage.frames) == 8)
            assert 8 in stage.turns
            assert len({number for number, _ in stage.frames}) == 8

    run(loop, main())


# Sizes.


@pytest.mark.parametrize("size", [0, 255, FRAME_BYTES_MAX + 1, (1 << 32) - 1])
def test_a_size_outside_the_bounds_closes_before_anything_is_allocated(
    loop: str, size: int
) -> None:
    """CL2."""

    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            tracemalloc.start()
            try:
                await send(client, declare(size))
                assert await is_cut_off(client)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < MIB
            await stage.until(lambda: stage.closed == [1])
            assert stage.frames == []

    run(loop, main())


def test_before_login_frames_are_small(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect(log_in=False)
            await send(client, frame_of(FRAME_BYTES_MAX_BEFORE_LOGIN))
            await stage.until(lambda: len(stage.frames) == 1)
            stage.listener.set_logged_in(1)
            await send(client, frame_of(FRAME_BYTES_MAX_BEFORE_LOGIN + 1))
            await stage.until(lambda: len(stage.frames) == 2)
            stranger = await stage.connect(log_in=False)
            await send(stranger, declare(FRAME_BYTES_MAX_BEFORE_LOGIN + 1))
            assert await is_cut_off(stranger)
            assert len(stage.frames) == 2

    run(loop, main())


# Replies.


def test_replies_keep_their_order_and_leave_in_one_write(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            stage.echo_marks()
            client = await stage.connect()
            await send(client, b"".join(frame_of(300, mark) for mark in range(200)))
            replies = await receive(client, 200 * HEADER_BYTES)
            marks = [mark_of(replies[at : at + 256]) for at in range(0, len(replies), 256)]
            assert marks == list(range(200))

    run(loop, main())


def test_replies_can_leave_before_the_turn_ends(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            await stage.until(lambda: len(stage.turns) == 1)  # which told of the connection
            stage.listener.memory.turn_bytes = 1000
            stage.listener.send(SendToConnection(1, (frame_of(HEADER_BYTES, 7),)))
            stage.listener.flush_replies()
            assert mark_of(await receive(client, HEADER_BYTES)) == 7
            assert stage.listener.memory.turn_bytes == 1000  # The turn goes on.
            stage.listener.flush()
            assert stage.listener.memory.turn_bytes == 0

    run(loop, main())


def test_a_reply_may_have_parts_of_any_kind(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            body = bytearray(frame_of(MIB))
            stage.listener.send(
                SendToConnection(1, (declare(600), memoryview(body)[:1000], bytearray(b"end")))
            )
            stage.listener.send(SendToConnection(1, (body,)))
            stage.listener.flush()
            got = await receive(client, 256 + 1000 + 3 + MIB)
            assert got == declare(600) + body[:1000] + b"end" + body

    run(loop, main())


def test_a_reply_to_a_lost_connection_is_dropped(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            client.close()
            await stage.until(lambda: stage.closed == [1])
            stage.listener.send(SendToConnection(1, (declare(256),)))
            stage.listener.close_connection(1, "too late")
            stage.listener.set_logged_in(1)
            stage.listener.flush()

    run(loop, main())


def test_what_is_sent_without_a_request_buys_no_more_of_them(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(requests_in_flight_max=2)) as stage:
            client = await stage.connect()
            for _ in range(5):
                stage.listener.send(SendToConnection(1, (declare(256),)))
            stage.listener.flush()
            await send(client, frame_of(256) * 4)
            await stage.until(lambda: len(stage.frames) == 2)
            await settle()
            assert len(stage.frames) == 2

    run(loop, main())


def test_closing_sends_the_replies_first(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            reply = frame_of(8 * MIB)
            stage.listener.send(SendToConnection(1, (reply,)))
            stage.listener.close_connection(1, "evicted")
            stage.listener.flush()
            assert await receive(client, len(reply) + 1) == reply
            await stage.until(lambda: stage.closed == [1])

    run(loop, main())


def test_after_closing_no_more_frames_are_taken(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            stage.listener.close_connection(1, "evicted")
            await send(client, frame_of(256))
            await stage.until(lambda: stage.closed == [1])
            assert stage.log == ["opened 1", "closed 1"]

    run(loop, main())


def test_a_closing_connection_has_a_deadline(loop: str) -> None:
    async def main() -> None:
        async with Stage(TcpLimits(close_seconds=2)) as stage:
            await stage.connect()  # It never reads.
            stage.listener.send(SendToConnection(1, (bytes(16 * MIB),)))
            stage.listener.close_connection(1, "evicted")
            for _ in range(2):
                stage.listener.sweep()
                await settle()
            assert stage.closed == []
            stage.listener.sweep()
            await stage.until(lambda: stage.closed == [1])

    run(loop, main())


# Beginning and end.


def test_listening_gives_the_address_and_a_taken_one_fails(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            other = TcpListener(TcpLimits(), stage)
            with pytest.raises(OSError, match="use") as caught:
                await other.listen("127.0.0.1", stage.port)
            assert caught.value.errno == errno.EADDRINUSE
            with pytest.raises(OSError, match=r".+"):
                await other.listen("no.such.host.invalid", 0)
            await other.close(grace_seconds=1)

    run(loop, main())


@pytest.mark.parametrize("host", ["::1", "::", "localhost"])
def test_other_addresses(loop: str, host: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            if ":" in host and not socket.has_ipv6:
                pytest.skip("no IPv6 here")
            try:
                bound, port = await stage.listener.listen(host, 0)
            except OSError as error:
                pytest.skip(f"cannot listen on {host}: {error}")
            assert port > 0
            stage.echo_marks()
            family = socket.AF_INET6 if ":" in bound else socket.AF_INET
            with socket.socket(family) as client:
                client.setblocking(False)
                target = "::1" if host == "::" else bound
                await asyncio.get_running_loop().sock_connect(client, (target, port))
                await send(client, frame_of(300, 5))
                assert mark_of(await receive(client, 256)) == 5
            (opened,) = stage.opened
            assert opened.transport is Transport.TCP
            expected = "[::1]:" if family == socket.AF_INET6 else "127.0.0.1:"
            assert opened.address.startswith(expected)

    run(loop, main())


def test_no_delay_is_set(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.connect()
            connection = stage.listener.connection(1)
            assert connection is not None
            accepted = connection._transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0

    run(loop, main())


def test_closing_the_listener_lets_replies_leave(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            reply = frame_of(8 * MIB)
            stage.listener.send(SendToConnection(1, (reply,)))
            received = asyncio.ensure_future(receive(client, len(reply) + 1))
            await stage.listener.close(grace_seconds=5)
            assert await received == reply
            assert stage.closed == [1]
            with pytest.raises(ConnectionRefusedError):
                await stage.attempt()

    run(loop, main())


def test_closing_the_listener_waits_only_so_long(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            await stage.connect()  # It never reads.
            stage.listener.send(SendToConnection(1, (bytes(16 * MIB),)))
            await stage.listener.close(grace_seconds=0.05)
            assert stage.closed == [1]

    run(loop, main())


def test_the_sweep_runs_by_itself(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.transports.tcp.SWEEP_SECONDS", 0.005)

    async def main() -> None:
        async with Stage(TcpLimits(first_frame_seconds=1)) as stage:
            assert await is_cut_off(await stage.connect())
            await stage.until(lambda: stage.closed == [1])

    run(loop, main())


def test_opened_comes_first_and_closed_last(loop: str) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect()
            client.send(frame_of(256) + frame_of(256))
            client.close()
            await stage.until(lambda: bool(stage.closed))
            assert stage.log == ["opened 1", "frame 1", "frame 1", "closed 1"]

    run(loop, main())


def test_connection_ids_carry_their_shard(loop: str) -> None:
    """SH-25."""
    assert make_connection_id(0, 1) == 1
    assert make_connection_id(3, 7) == 3 << 112 | 7
    assert make_connection_id(65_535, (1 << 112) - 1) == (1 << 128) - 1

    async def main() -> None:
        stage = Stage()
        stage.listener._shard = 3
        async with stage:
            await stage.connect()
            assert stage.opened[0].connection == 3 << 112 | 1

    run(loop, main())


def test_the_slab_is_small_beside_what_is_received(loop: str) -> None:
    """Connections share it: a thousand of them cost no more of it than one."""

    async def main() -> None:
        async with Stage() as stage:
            await stage.connect()
            await stage.connect()
            first, second = (stage.listener.connection(number) for number in (1, 2))
            assert first is not None
            assert second is not None
            one, two = first.get_buffer(-1), second.get_buffer(-1)
            one[:3] = b"abc"
            assert bytes(two[:3]) == b"abc"
            assert len(one) == SLAB_BYTES

    run(loop, main())
