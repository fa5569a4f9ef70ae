"""`headrace ping` against small servers that behave, or do not."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from headrace.cli.exits import Exit
from headrace.cli.main import run
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason, encode_eviction
from headrace.wire.numbers import Operation
from headrace.wire.replies import encode_reply
from headrace.wire.requests import REQUEST, RequestHeader, check_request

Answer = Callable[[RequestHeader], bytes]
HEADER_BYTES = 256


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Serve one client: each header is answered, and no bytes end the connection."""

    def serve() -> None:
        link, _ = listener.accept()
        with link, suppress(ConnectionError):  # a client that has seen enough is gone
            while data := link.recv(HEADER_BYTES, socket.MSG_WAITALL):
                reply = answer(REQUEST.decode(data))
                if not reply:
                    return
                link.sendall(reply[:100])  # in two pieces
                link.sendall(reply[100:])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def pong(header: RequestHeader) -> bytes:
    return encode_reply(header, b"")


def test_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    headers = []

    def answer(header: RequestHeader) -> bytes:
        headers.append(header)
        return pong(header)

    with server(answer) as address:
        assert run(["ping", "--address", address, "--count", "3", "--interval", "1 us"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert re.fullmatch(
        "".join(rf"{address} {number}: [0-9.]+ ms\n" for number in (1, 2, 3)), told.out
    )
    assert [header.code for header in headers] == [1, 1, 1]
    assert [header.request for header in headers] == [1, 2, 3]
    assert all(check_request(header) == Operation.NON_REPLICATED for header in headers)
    assert len(dict.fromkeys(header.client for header in headers)) == 1


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_round_trips_for_programs(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    with server(pong) as address:
        flags = ["--count", "2", "--interval", "1 us", "-o", output]
        assert run(["ping", "--address", address, *flags]) == 0
    out = capsys.readouterr().out
    trips = json.loads(out) if output == "json" else [json.loads(x) for x in out.splitlines()]
    assert [list(trip) for trip in trips] == [["address", "number", "nanos"]] * 2
    assert [(trip["address"], trip["number"]) for trip in trips] == [(address, 1), (address, 2)]
    assert all(trip["nanos"] > 0 for trip in trips)


def test_the_address_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(pong) as address:
        monkeypatch.setenv("HEADRACE_ADDRESS", address)
        assert run(["ping", "--count", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"{address} 1: ")


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (lambda _: b"", Exit.UNAVAILABLE, "closed the connection"),
        (
            lambda header: encode_reply(header, b"", status=Code.UNAUTHENTICATED),
            Exit.FAILED,
            "refused: ",
        ),
        (
            lambda header: encode_eviction(EvictionReason.NO_SESSION, header.client),
            Exit.FAILED,
            "refused: ",
        ),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n".ljust(512), Exit.FAILED, "does not speak"),
        (lambda _: bytes(512), Exit.FAILED, "does not speak"),
    ],
)
def test_answers_that_are_no_pong(
    answer: Answer, code: Exit, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(answer) as address:
        assert run(["ping", "--address", address]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"headrace: {address} {words}")
    assert told.err.count("\n") == 1


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert run(["ping", "--address", f"127.0.0.1:{port}"]) == Exit.UNAVAILABLE
    assert capsys.readouterr().err == (
        f"headrace: 127.0.0.1:{port} cannot be reached: Connection refused\n"
    )


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert run(["ping", "--address", address, "--timeout", "20 ms"]) == Exit.UNAVAILABLE
    assert capsys.readouterr().err == f"headrace: {address} did not answer within 0.02 s\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--address", "x"],
        ["--address", "127.0.0.1:0"],
        ["--count", "0"],
        ["--interval", "3"],
        ["--interval", "2 h"],
        ["--timeout", "0 s"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ping", *arguments]) == Exit.USAGE
    assert capsys.readouterr().err


def test_a_wrong_address_of_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_ADDRESS", "nonsense")
    assert run(["ping"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("headrace: HEADRACE_ADDRESS: 'nonsense' has no port")
