"""The small HTTP listener, over real sockets."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from headrace.base.endpoints import Endpoint
from headrace.runtime.http_ping import CONNECTIONS_MAX, HEAD_BYTES_MAX, HttpPing

LOCAL = Endpoint("127.0.0.1", 0)
WAIT_SECONDS = 10
Talk = Callable[[Endpoint], Awaitable[None]]


def served(talk: Talk, head_seconds_max: float = WAIT_SECONDS) -> None:
    """Run a client against a listener, on both loops that a node can have."""

    async def run() -> None:
        async with HttpPing(head_seconds_max) as listener, asyncio.timeout(WAIT_SECONDS):
            await talk(await listener.listen(LOCAL))

    for loop_factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(run())


async def ask(endpoint: Endpoint, *pieces: bytes) -> bytes:
    """Send the pieces one by one, end, and give all that comes back."""
    reader, writer = await asyncio.open_connection(*endpoint)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


CLOSE = b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /ping HTTP/1.1", 200),
        (b"GET /ping HTTP/1.0", 200),
        (b"GET /ping?x=1 HTTP/1.1", 200),
        (b"POST /ping HTTP/1.1", 405),
        (b"HEAD /ping HTTP/1.1", 405),
        (b"GET / HTTP/1.1", 404),
        (b"GET /pingo HTTP/1.1", 404),
        (b"DELETE /streams/1 HTTP/1.1", 404),
        (b"GET /ping HTTP/2.0", 400),
        (b"GET /ping", 400),
        (b"GET  /ping HTTP/1.1", 400),
        (b"\x16\x03\x01 hello", 400),
        (b"", 400),
    ],
)
def test_answers(request_line: bytes, status: int) -> None:
    async def talk(endpoint: Endpoint) -> None:
        answer = await ask(endpoint, request_line + b"\r\nHost: x\r\n" + CLOSE)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert status_of(answer) == status
        assert f"Content-Length: {len(body)}".encode() in head
        assert (b"Allow: GET" in head) == (status == 405)
        if status == 200:
            assert body == b"pong"
        else:
            assert list(json.loads(body)) == ["error"]

    served(talk)


def test_any_cut_of_the_bytes_gives_the_same_answer() -> None:
    request = b"GET /ping HTTP/1.1\r\nHost: x\r\n" + CLOSE

    async def talk(endpoint: Endpoint) -> None:
        for cut in range(1, len(request)):
            assert status_of(await ask(endpoint, request[:cut], request[cut:])) == 200

    served(talk)


def test_one_request_after_another() -> None:
    async def talk(endpoint: Endpoint) -> None:
        request = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await ask(endpoint, request * 3 + b"GET /no HTTP/1.1\r\n" + CLOSE)
        assert answer.count(b"200 OK") == 3
        assert answer.count(b"404 Not Found") == 1

    served(talk)


@pytest.mark.parametrize(
    "header",
    [b"Content-Length: 5", b"Content-length: 05", b"Transfer-Encoding: chunked", b"Bad", b"A B: c"],
)
def test_what_follows_a_body_is_not_taken_for_a_request(header: bytes) -> None:
    async def talk(endpoint: Endpoint) -> None:
        answer = await ask(
            endpoint,
            b"POST /ping HTTP/1.1\r\n" + header + b"\r\n\r\nGET /ping HTTP/1.1\r\n\r\n",
        )
        assert answer.count(b"Content-Length") == 1
        assert status_of(answer) in (400, 405)
        assert b"Connection: close" in answer

    served(talk)


@pytest.mark.parametrize("has_end", [True, False])
def test_a_head_has_a_bound(has_end: bool) -> None:
    async def talk(endpoint: Endpoint) -> None:
        head = b"GET /ping HTTP/1.1\r\nX: ".ljust(HEAD_BYTES_MAX + 1, b"x")
        answer = await ask(endpoint, head + b"\r\n\r\n" * has_end)
        assert status_of(answer) == 431

    served(talk)


def test_a_head_must_come_in_time() -> None:
    async def talk(endpoint: Endpoint) -> None:
        assert await ask(endpoint, b"GET /ping HTTP/1.1\r\n") == b""

    served(talk, head_seconds_max=0.01)


def test_connections_have_a_bound() -> None:
    async def talk(endpoint: Endpoint) -> None:
        writers = [(await asyncio.open_connection(*endpoint))[1] for _ in range(CONNECTIONS_MAX)]
        assert status_of(await ask(endpoint)) == 503
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        assert status_of(await ask(endpoint, b"GET /ping HTTP/1.1\r\n" + CLOSE)) == 200

    served(talk)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_not_read_either() -> None:
    request = b"GET /ping HTTP/1.1\r\n\r\n"
    requests = request * 1000
    answer_end = b"pong"

    async def talk(endpoint: Endpoint) -> None:
        with socket.socket() as link:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                link.setsockopt(socket.SOL_SOCKET, option, 4096)
            link.connect(endpoint)
            link.setblocking(False)
            sent = await send_while_possible(link, requests)
            assert sent > len(request)
            wanted = sent // len(request)
            received = bytearray()
            while answer_end not in received or len(received) < wanted * answer_bytes(received):
                received += await asyncio.get_running_loop().sock_recv(link, 1 << 20)
            assert received.count(answer_end) == wanted

    def answer_bytes(received: bytearray) -> int:
        return received.index(answer_end) + len(answer_end)

    async def send_while_possible(link: socket.socket, requests: bytes) -> int:
        """Send until the listener takes no more, which it must reach; give how much it took."""
        sent = idle = 0
        while idle < 20:
            try:
                sent += link.send(requests[sent % len(request) :])
                idle = 0
            except BlockingIOError:
                idle += 1
            await asyncio.sleep(0.001)
        return sent

    served(talk)


def test_a_taken_port() -> None:
    async def run() -> None:
        async with HttpPing() as one, HttpPing() as two:
            endpoint = await one.listen(LOCAL)
            assert endpoint.port != 0
            with pytest.raises(OSError, match="in use"):
                await two.listen(endpoint)

    asyncio.run(run())
