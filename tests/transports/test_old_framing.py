"""A peer of an older protocol is told from ours by its first eight bytes, and is closed."""

import logging
import struct

import pytest

from headrace.base.limits import HEADER_BYTES
from tests.transports.stage import LOOPS, Stage, frame_of, is_cut_off, receive, run, send, settle

PING, LOGIN, LOGIN_BY_TOKEN = 1, 38, 44


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("start", [(4, PING), (60, LOGIN), (36, LOGIN_BY_TOKEN)])
def test_an_old_peer_is_closed_with_a_line_that_says_so(
    loop: str, start: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Stage() as stage:
            client = await stage.connect(log_in=False)
            await send(client, struct.pack("<I", start[0]))
            await settle()
            assert stage.closed == []
            await send(client, struct.pack("<I", start[1]))
            assert await is_cut_off(client)
            await stage.until(lambda: stage.closed == [1])
            assert stage.frames == []

    with caplog.at_level(logging.WARNING):
        run(loop, main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "127.0.0.1" in line
    assert "older framing" in line
    assert "0.11.0" in line


def test_an_old_peer_that_comes_again_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Stage() as stage:
            for count in range(1, 4):
                client = await stage.connect(log_in=False)
                await send(client, struct.pack("<II", 4, PING))
                assert await is_cut_off(client)
                await stage.until(lambda: stage.closed == list(range(1, count + 1)))  # noqa: B023 - used up here

    with caplog.at_level(logging.WARNING):
        run("asyncio", main())
    assert len(caplog.records) == 1


def test_only_the_first_bytes_of_a_connection_are_judged() -> None:
    """A body, and a later header, may hold any bytes."""

    async def main() -> None:
        async with Stage() as stage:
            stage.echo_marks()
            client = await stage.connect()
            first, later = frame_of(HEADER_BYTES, 1), bytearray(frame_of(HEADER_BYTES, 2))
            struct.pack_into("<II", later, 0, 4, PING)
            await send(client, first)
            assert len(await receive(client, HEADER_BYTES)) == HEADER_BYTES
            await send(client, bytes(later))
            assert len(await receive(client, HEADER_BYTES)) == HEADER_BYTES

    run("asyncio", main())
