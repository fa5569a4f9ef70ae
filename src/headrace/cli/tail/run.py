"""Runs `headrace tail`: merges partitions into one sequence and writes it to stdout.

Loaded by name when the command runs.
"""

import errno
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from headrace.cli.names import TopicName
from headrace.cli.show.message_lines import Writer, write_values
from headrace.cli.show.meter import Meter
from headrace.cli.tail.filters import Filter, keep
from headrace.cli.tail.merge import Lane, Run, merge, open_consumer
from headrace.cli.tail.options import Given, Wanted, read_wanted
from headrace.cli.tail.starts import Newest, Start
from headrace.client.errors import HeadraceError
from headrace.client.messages import Message
from headrace.client.sync.client import Client

if TYPE_CHECKING:
    from headrace.client.consume.options import ConsumerOptions

POLL_MESSAGES_MAX = 4_096
COUNT_MAX = 1 << 62
IDLE_SECONDS_MIN = 0.001
IDLE_SECONDS_MAX = 0.1
PARTITIONS_SECONDS = 5.0  # how old the list of partitions may get
BAR_MESSAGES_MIN = 1_000  # fewer messages need no bar


def tail(client: Client, topic: TopicName, given: Given) -> None:
    """Show messages of a topic, and follow it if asked to.

    Raises:
        click.UsageError: An option is wrong.
    """
    wanted = read_wanted(topic, given, is_terminal=sys.stdout.isatty())
    shown = _Shown(wanted, sys.stdout.buffer)
    reading = _Reading(client, wanted)
    is_done = False
    try:
        if isinstance(wanted.start, Newest) and (wanted.is_searched or len(reading.lanes) > 1):
            shown.show_all(_newest(reading.lanes, wanted.start.count, wanted.filters))
        _show_runs(reading, shown, wanted)
        is_done = True
    except KeyboardInterrupt:
        is_done = True
        raise
    finally:
        try:
            shown.end()
        finally:
            reading.close(is_done=is_done)


def _show_runs(reading: "_Reading", shown: "_Shown", wanted: Wanted) -> None:
    with Meter(wanted.count, is_quiet=not _has_bar(wanted)) as meter:
        for run in reading.runs(shown):
            before = shown.left()
            shown.show(run)
            meter.advance(before - shown.left())
            meter.show(shown.count)


def _has_bar(wanted: Wanted) -> bool:
    """Whether the output is long, its end is known, and stdout is a file.

    Messages on a terminal show the progress themselves, and the reader of a pipe may write to the
    terminal.
    """
    if wanted.count is None or wanted.count < BAR_MESSAGES_MIN:
        return False
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # stdout was replaced within this process.
        return False


def _newest(lanes: list[Lane], count: int, filters: list[Filter]) -> list[Message]:
    """Return the newest messages of all lanes that pass; this reads each lane to its end."""
    newest: deque[Message] = deque(maxlen=count)
    for run in merge(lanes, lambda: COUNT_MAX):
        if filters:
            newest.extend(run.messages[run.start + i] for i in keep(run.values(), filters))
        else:
            newest.extend(run.all())
    return list(newest)


class _Shown:
    """Writes messages that pass the filters, and counts them."""

    def __init__(self, wanted: Wanted, out: BinaryIO) -> None:
        self._look = wanted.look
        self._filters = wanted.filters
        self._writer = Writer(wanted.look)
        self._left = COUNT_MAX if wanted.count is None else wanted.count
        self._most = self._left
        self._out = out

    @property
    def count(self) -> int:
        """The number of messages shown."""
        return self._most - self._left

    def left(self) -> int:
        """Return how many more messages may be shown."""
        return self._left

    def show(self, run: Run) -> None:
        """Show a run."""
        if self._look.is_plain:
            values = run.values()
            if self._filters:
                values = [values[index] for index in keep(values, self._filters)]
            self._out.write(write_values(values, self._look.delimiter))
            self._left -= len(values)
        else:
            self.show_all(run.all())

    def show_all(self, messages: list[Message]) -> None:
        """Show messages one by one."""
        if self._filters:
            places = keep([message.value for message in messages], self._filters)
            messages = [messages[index] for index in places]
        messages = messages[: self._left]
        self._out.write(self._writer.write(messages))
        self._left -= len(messages)

    def flush(self) -> None:
        """Flush the output."""
        self._out.flush()

    def check_reader(self) -> None:
        """Check that the other end of a pipe is still open.

        A write finds that out by itself, but a topic without new messages causes none.

        Raises:
            BrokenPipeError: The reader has closed its end.
        """
        try:
            output = self._out.fileno()
        except (OSError, ValueError):  # stdout was replaced within this process.
            return
        poll = select.poll()
        poll.register(output, 0)  # POLLERR is always reported
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def end(self) -> None:
        """Write the bytes after the last message."""
        self._out.write(self._writer.end())
        self._out.flush()


class _Reading:
    """The lanes of a topic, and the waiting between messages."""

    def __init__(self, client: Client, wanted: Wanted) -> None:
        self._client = client
        self._wanted = wanted
        self._asked = time.monotonic()
        self._options: ConsumerOptions = {
            "wait": 0,
            "count": min(wanted.count or POLL_MESSAGES_MAX, POLL_MESSAGES_MAX),
        }
        if wanted.consumer is not None:
            self._options["name"] = wanted.consumer
        if wanted.group is not None:
            self.lanes = [self._open_group()]
        else:
            numbers = self._partitions() if wanted.partition is None else [wanted.partition]
            start: Start = "earliest" if wanted.is_searched else wanted.start
            self.lanes = [self._open(number, start) for number in numbers]
            self._known = numbers

    def runs(self, shown: _Shown) -> Iterator[Run]:
        """Yield the existing messages in order; when following, also new ones."""
        idle = IDLE_SECONDS_MIN
        while True:
            is_empty = True
            for run in merge(self.lanes, shown.left):
                is_empty = False
                yield run
            if not self._wanted.is_following or not shown.left():
                return
            shown.flush()
            shown.check_reader()
            idle = min(2 * idle, IDLE_SECONDS_MAX) if is_empty else IDLE_SECONDS_MIN
            time.sleep(idle)
            self._look_for_partitions()

    def close(self, *, is_done: bool) -> None:
        """Store offsets and leave the group; an earlier error takes precedence."""
        for lane in self.lanes:
            try:
                self._close(lane)
            except HeadraceError:
                if is_done:
                    raise

    def _close(self, lane: Lane) -> None:
        has_offset = self._wanted.consumer is not None or self._wanted.group is not None
        if not lane.is_shown and lane.shown is not None and has_offset:
            lane.consumer.commit(lane.shown)  # Only a part of the last poll was shown.
        lane.consumer.close(is_clean=lane.is_shown)

    def _open_group(self) -> Lane:
        wanted, start = self._wanted, self._wanted.start
        assert wanted.group is not None
        assert not isinstance(start, Newest)
        told: ConsumerOptions = {**self._options, "group": wanted.group, "start": start}
        consumer = self._client.consumer(wanted.topic, **told)
        return Lane(consumer, _tell, is_skipping=wanted.is_skipping)

    def _open(self, partition: int, start: Start) -> Lane:
        consumer = open_consumer(
            self._client, self._wanted.topic, partition, start, self._options, _tell
        )
        return Lane(consumer, _tell, is_skipping=self._wanted.is_skipping)

    def _partitions(self) -> list[int]:
        return [each.id for each in self._client.get_topic(self._wanted.topic).partitions]

    def _look_for_partitions(self) -> None:
        """Add partitions that were created since, from their first message on."""
        is_fixed = self._wanted.partition is not None or self._wanted.group is not None
        if is_fixed or time.monotonic() - self._asked < PARTITIONS_SECONDS:
            return
        self._asked = time.monotonic()
        for number in self._partitions():
            if number not in self._known:
                self._known.append(number)
                self.lanes.append(self._open(number, "earliest"))


def _tell(words: str) -> None:
    """Report on stderr what is not data: a missing range, or a partition that was reset."""
    click.echo(words, err=True)
