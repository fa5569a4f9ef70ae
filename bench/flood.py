"""Logins at a steady rate, each on a connection of its own: a process beside what is measured.

    python -m bench.flood PORT LOGIN_FRAME RATE SECONDS

A login is due when it is due, however the earlier ones fare. It prints what became of them.
"""

import asyncio
import contextlib
import json
import secrets
import sys
import time
from collections import Counter
from pathlib import Path

from headrace.base.limits import HEADER_BYTES
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.layout import SIZE
from headrace.wire.replies import read_answer
from headrace.wire.requests import REQUEST

ANSWER_SECONDS_MAX = 30.0
UNDER_WAY_MAX = 400  # below what a node lets connect without a login
_CLIENT = REQUEST.span("client")


def with_own_client(frame: bytes) -> bytes:
    """Give a login of a client that nobody is yet."""
    client = secrets.token_bytes(_CLIENT.stop - _CLIENT.start - 1) + b"\x01"
    return frame[: _CLIENT.start] + client + frame[_CLIENT.stop :]


async def log_in(port: int, frame: bytes) -> str:
    """Log in on a new connection; say what came of it."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        return f"no connection: {error.strerror}"
    try:
        writer.write(with_own_client(frame))
        header = await reader.readexactly(HEADER_BYTES)
        size = int.from_bytes(header[SIZE], "little")
        read_answer(header + await reader.readexactly(size - HEADER_BYTES))
    except (RefusedError, EvictedError) as error:
        return f"refused: {error}"
    except (OSError, asyncio.IncompleteReadError):
        return "closed instead of an answer"
    else:
        return "logged in"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def flood(port: int, frame: bytes, rate: float, seconds: float) -> Counter[str]:
    """Offer so many logins a second for so many seconds; count what came of them."""
    counted: Counter[str] = Counter()
    under_way: set[asyncio.Task[None]] = set()

    async def offer() -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                counted[await log_in(port, frame)] += 1
        except TimeoutError:
            counted[f"no answer within {ANSWER_SECONDS_MAX:.0f} s"] += 1

    start = time.monotonic()
    for number in range(round(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        if len(under_way) >= UNDER_WAY_MAX:
            counted["not offered: too many under way"] += 1
            continue
        task = asyncio.create_task(offer())
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    return counted


def main() -> None:
    """Flood, and print the counts as JSON."""
    port, login, rate, seconds = sys.argv[1:]
    frame = Path(login).read_bytes()
    print(json.dumps(asyncio.run(flood(int(port), frame, float(rate), float(seconds)))))


if __name__ == "__main__":
    main()
