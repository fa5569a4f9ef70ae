"""`headrace ping`: measures the round trip to a node, over the binary protocol, without login."""

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import click

from headrace.base.endpoints import Endpoint
from headrace.base.ids import Micros
from headrace.base.limits import KIB
from headrace.base.units import parse_duration
from headrace.cli.connect.target import naming_context, resolve_address
from headrace.cli.exits import CommandError, Exit
from headrace.cli.show.output import Rows, json_line, output_option, show
from headrace.wire.commands.system import PING
from headrace.wire.errors import DecodeError, RefusedError, RemoteError
from headrace.wire.evictions import EvictedError
from headrace.wire.frames import FrameCutter
from headrace.wire.replies import read_answer
from headrace.wire.requests import encode_request

COUNT_MAX = 1_000_000
ANSWER_BYTES_MAX = 4 * KIB
SECOND = 1_000_000
WAIT_MAX = 3600 * SECOND


@dataclass(frozen=True)
class Trip:
    """One round trip."""

    address: str
    number: int
    nanos: int


def _read_duration(context: click.Context, option: click.Parameter, text: str) -> Micros:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None


@click.command(short_help="Measure the round trip to a node.")
@click.option("--address", metavar="HOST:PORT", help="The node. [HEADRACE_ADDRESS, 127.0.0.1:8090]")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=4, help="How often. [4]")
@click.option("--interval", callback=_read_duration, default="1 s", help="Time between. [1 s]")
@click.option("--timeout", callback=_read_duration, default="5 s", help="Longest wait. [5 s]")
@output_option
def ping(address: str | None, count: int, interval: Micros, timeout: Micros, output: str) -> None:
    """Measure the round trip to a node; it needs no login.

    Ends with 5 when the node cannot be reached or does not answer in time.

    Example: headrace ping --count 10 --interval "100 ms"
    """
    endpoint = resolve_address(address, os.environ)
    if not 0 < timeout <= WAIT_MAX or interval > WAIT_MAX:
        raise CommandError(
            "--timeout and --interval: at most one hour, a timeout above 0", Exit.USAGE
        )
    with naming_context(os.environ, address), _connect(endpoint, timeout) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _show_trips(_ping_often(link, endpoint, count, interval, timeout), output)


def _connect(endpoint: Endpoint, timeout: Micros) -> socket.socket:
    with _failures(endpoint, timeout):
        return socket.create_connection(endpoint, timeout / SECOND)


@contextmanager
def _failures(endpoint: Endpoint, timeout: Micros) -> Iterator[None]:
    """Turn network errors into command errors; errors of the output are not affected."""
    try:
        yield
    except TimeoutError:
        raise CommandError(
            f"{endpoint} did not answer within {timeout / SECOND:g} s", Exit.UNAVAILABLE
        ) from None
    except OSError as error:
        raise CommandError(
            f"{endpoint} cannot be reached: {error.strerror or error}", Exit.UNAVAILABLE
        ) from None


def _show_trips(trips: Iterator[Trip], output: str) -> None:
    """Print each trip as it comes, or all at the end for formats that are one document."""
    seen = []
    for trip in trips:
        seen.append(asdict(trip))
        if output == "table":
            click.echo(f"{trip.address} {trip.number}: {trip.nanos / 1_000_000:.3f} ms")
        elif output == "jsonl":
            click.echo(json_line(asdict(trip)))
    if output in ("json", "yaml"):
        show(Rows(seen), output)


def _ping_often(
    link: socket.socket, endpoint: Endpoint, count: int, interval: Micros, timeout: Micros
) -> Iterator[Trip]:
    client = secrets.randbits(128) | 1  # zero is not a client id
    cutter = FrameCutter(ANSWER_BYTES_MAX)
    for number in range(1, count + 1):
        started = time.perf_counter_ns()
        request = encode_request(
            PING.operation, b"", client=client, session=0, request=number, code=PING.code
        )
        with _failures(endpoint, timeout):
            link.sendall(request)
            _wait_answer(link, endpoint, cutter)
        nanos = time.perf_counter_ns() - started
        yield Trip(address=str(endpoint), number=number, nanos=nanos)
        if number < count:
            time.sleep(interval / SECOND)


def _wait_answer(link: socket.socket, endpoint: Endpoint, cutter: FrameCutter) -> None:
    """Receive one answer; anything but a pong is an error."""
    try:
        while True:
            piece = link.recv(ANSWER_BYTES_MAX)
            if not piece:
                raise CommandError(f"{endpoint} closed the connection", Exit.UNAVAILABLE)
            for frame in cutter.feed(piece):
                read_answer(frame)
                return
    except (RemoteError, DecodeError) as error:
        raise CommandError(f"{endpoint} does not speak the protocol: {error}") from None
    except (RefusedError, EvictedError) as error:
        raise CommandError(f"{endpoint} refused: {error}") from None
