"""Runs `headrace produce`: reads the input in chunks, sends them, and reports.

Loaded by name when the command runs.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Literal, cast

import click

from headrace.base.limits import MIB
from headrace.cli.exits import CommandError
from headrace.cli.names import TopicName, show_topic
from headrace.cli.produce.create_topic import ensure_topic
from headrace.cli.produce.interrupts import Interrupts
from headrace.cli.produce.records import Bad, Chunk, read_csv, read_json_lines, read_lines
from headrace.cli.show.meter import Meter
from headrace.cli.show.output import Done
from headrace.client.errors import HeadraceError
from headrace.client.produce.options import ProducerOptions
from headrace.client.sync.client import Client
from headrace.client.sync.producer import Producer

BLOCK_BYTES = MIB
BAD_LINES_SHOWN = 20
STEPS_PER_SECOND = 20  # granularity of the rate limit


@dataclass(frozen=True)
class Wanted:
    """The checked options of the user."""

    topic: TopicName
    format: Literal["lines", "jsonl", "csv"]
    file: Path | None
    delimiter: str
    key: str | None
    key_field: str | None
    headers: dict[str, str]
    on_error: Literal["stop", "skip"]
    rate: int | None
    is_create: bool | None
    partitions: int
    options: ProducerOptions


def produce(client: Client, wanted: Wanted) -> Done:
    """Send the whole input to a topic.

    Raises:
        CommandError: A line is bad, with `--on-error stop`.
        click.Abort: It was interrupted; the messages read before were sent.
    """
    is_created = ensure_topic(
        client, wanted.topic, is_create=wanted.is_create, partitions=wanted.partitions
    )
    with ExitStack() as stack:
        source = _open(wanted.file, stack)
        interrupts = stack.enter_context(Interrupts())
        run = _Run(client.producer(wanted.topic, **wanted.options), wanted, interrupts)
        stack.callback(run.tell_unless_ended)
        is_typed = wanted.file is None and sys.stdin.isatty()
        run.meter = stack.enter_context(Meter(_size_of(source), is_quiet=is_typed))
        for chunk in _read_chunks(_read_blocks(source, interrupts, run.meter), wanted):
            run.take(chunk)
        run.end()
    done = run.report(is_created=is_created)
    if interrupts.is_wanted:
        click.echo(f"Interrupted. {done.sentence}", err=True)
        raise click.Abort
    return done


class _Run:
    """One run of the command: counts sent, empty and bad lines."""

    def __init__(self, producer: Producer, wanted: Wanted, interrupts: Interrupts) -> None:
        self.meter = Meter(None, is_quiet=True)
        self._producer = producer
        self._wanted = wanted
        self._interrupts = interrupts
        self._began = time.monotonic()
        self._seconds = 0.0
        self._taken = 0
        self._empty_count = 0
        self._bad_count = 0
        self._has_ended = False

    def take(self, chunk: Chunk) -> None:
        """Send a chunk; a bad line is reported, or stops the run."""
        self._empty_count += chunk.empty_count
        for part in self._pace(chunk):
            self._send(part)
            self._producer.check()
            self.meter.show(self._producer.confirmed_count)
        if chunk.bad is not None:
            self._refuse(chunk.bad)

    def end(self) -> None:
        """Wait until everything is confirmed."""
        self._producer.close()
        self._seconds = max(time.monotonic() - self._began, 1e-6)
        self._has_ended = True

    def tell_unless_ended(self) -> None:
        """Report how many messages are confirmed when an error ends the run."""
        if self._has_ended:
            return
        with suppress(HeadraceError):  # The first error is shown.
            self._producer.close()
        count = self._producer.confirmed_count
        click.echo(f"It failed after {_messages(count)} were confirmed.", err=True)

    def report(self, *, is_created: bool) -> Done:
        """Return the result of the run."""
        count, shown = self._producer.confirmed_count, show_topic(self._wanted.topic)
        rate = count / self._seconds
        sentence = f"{_messages(count)} to {shown} in {self._seconds:.2f} s, {rate:,.0f}/s."
        if self._empty_count:
            sentence += f" Empty lines left out: {self._empty_count:,}."
        if self._bad_count:
            sentence += f" Bad lines left out: {self._bad_count:,}."
        return Done(
            sentence,
            {
                "topic": shown,
                "messages_count": count,
                "run_time_micros": round(self._seconds * 1e6),
                "empty_count": self._empty_count,
                "bad_count": self._bad_count,
                "is_created": is_created,
            },
        )

    def _pace(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield a chunk in parts, each when the rate allows it."""
        rate = self._wanted.rate
        if rate is None:
            yield chunk
            return
        step = max(rate // STEPS_PER_SECOND, 1)
        for start in range(0, len(chunk.values), step):
            if self._interrupts.is_wanted:
                return
            time.sleep(max(self._began + self._taken / rate - time.monotonic(), 0.0))
            end = start + step
            yield Chunk(chunk.values[start:end], chunk.keys and chunk.keys[start:end])

    def _send(self, chunk: Chunk) -> None:
        headers = self._wanted.headers or None
        if chunk.keys is None:
            self._producer.send_many(chunk.values, key=self._wanted.key, headers=headers)
        else:
            for value, key in zip(chunk.values, chunk.keys, strict=True):
                self._producer.send(value, key=key, headers=headers)
        self._taken += len(chunk.values)

    def _refuse(self, bad: Bad) -> None:
        if self._wanted.on_error == "stop":
            self.end()
            sent = _messages(self._producer.confirmed_count)
            raise CommandError(
                f"line {bad.line}: {bad.reason}; {sent} before it went through;"
                " --on-error skip leaves such lines out"
            )
        self._bad_count += 1
        if self._bad_count <= BAD_LINES_SHOWN:
            click.echo(f"line {bad.line} is left out: {bad.reason}", err=True)
        elif self._bad_count == BAD_LINES_SHOWN + 1:
            click.echo("more bad lines are only counted", err=True)


def _messages(count: int) -> str:
    return f"{count:,} message" if count == 1 else f"{count:,} messages"


# The input.


def _open(file: Path | None, stack: ExitStack) -> BufferedReader:
    if file is not None:
        return stack.enter_context(file.open("rb"))
    if sys.stdin.isatty():
        click.echo("Every line that you type is a message; Ctrl-D ends.", err=True)
    return cast("BufferedReader", sys.stdin.buffer)  # which has `read1` too


def _size_of(source: BufferedReader) -> int | None:
    """Return the size of a file; None for a pipe, whose size is unknown."""
    try:
        return os.fstat(source.fileno()).st_size or None
    except (OSError, ValueError):
        return None


def _read_blocks(source: BufferedReader, interrupts: Interrupts, meter: Meter) -> Iterator[bytes]:
    while block := interrupts.wait(lambda: source.read1(BLOCK_BYTES)):
        yield block
        meter.advance(len(block))


def _read_chunks(blocks: Iterator[bytes], wanted: Wanted) -> Iterator[Chunk]:
    if wanted.format == "jsonl":
        return read_json_lines(blocks, wanted.key_field)
    if wanted.format == "csv":
        return read_csv(blocks, wanted.delimiter, wanted.key_field)
    return read_lines(blocks, wanted.delimiter.encode())
