"""The options of `headrace tail`, checked; all problems are reported at once."""

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, TypeVar

import click

from headrace.cli.names import TopicName
from headrace.cli.show.message_lines import COLUMNS, Look
from headrace.cli.tail.filters import Filter, parse_filter
from headrace.cli.tail.starts import Newest, Start, parse_start
from headrace.wire.identifiers import Identifier

START_DEFAULT = "end-10"
GROUP_START_DEFAULT = "earliest"

T = TypeVar("T")


class Given(TypedDict):
    """The options from click; None if one was not given."""

    start: str | None
    partition: int | None
    consumer: Identifier | None
    group: Identifier | None
    count: int | None
    filters: tuple[str, ...]
    is_following: bool
    is_skipping: bool
    is_json: bool
    show: str
    delimiter: str
    output: str


@dataclass(frozen=True)
class Wanted:
    """The checked options of the user."""

    topic: TopicName
    start: Start
    partition: int | None
    consumer: Identifier | None
    group: Identifier | None
    count: int | None
    filters: list[Filter]
    is_following: bool
    is_skipping: bool
    look: Look

    @property
    def is_searched(self) -> bool:
        """Whether to show the newest messages that match, wherever they are in the topic.

        A named consumer instead gets the messages after its stored offset, and skips none.
        """
        return isinstance(self.start, Newest) and bool(self.filters) and self.consumer is None


def read_wanted(topic: TopicName, given: Given, *, is_terminal: bool) -> Wanted:
    """Return the checked options.

    Raises:
        click.UsageError: An option is wrong.
    """
    problems: list[str] = []
    default = START_DEFAULT if given["group"] is None else GROUP_START_DEFAULT
    start = _try(problems, "--from", parse_start, given["start"] or default)
    filters = [_try(problems, "--filter", parse_filter, text) for text in given["filters"]]
    columns = tuple(name for name in given["show"].split(",") if name)
    problems += _problems(given, start, columns)
    if problems:
        raise click.UsageError("; ".join(problems))
    assert start is not None
    look = Look(
        output=given["output"],
        columns=columns,
        is_json=given["is_json"],
        is_terminal=is_terminal,
        delimiter=codecs.decode(given["delimiter"], "unicode_escape").encode(),
    )
    return Wanted(
        topic=topic,
        start=start,
        partition=given["partition"],
        consumer=given["consumer"],
        group=given["group"],
        count=given["count"],
        filters=[each for each in filters if each is not None],
        is_following=given["is_following"],
        is_skipping=given["is_skipping"],
        look=look,
    )


def _problems(given: Given, start: Start | None, columns: tuple[str, ...]) -> list[str]:
    """Return the options that contradict each other."""
    problems = []
    wrong = [name for name in columns if name not in COLUMNS]
    if wrong:
        problems.append(f"--show: {', '.join(wrong)} is none of {', '.join(COLUMNS)}")
    if given["group"] is not None:
        if given["consumer"] is not None or given["partition"] is not None:
            problems.append("--group: not allowed with --consumer or --partition")
        if isinstance(start, int | Newest):
            problems.append("--from: a group begins at earliest, latest or a time")
    return problems


def _try(problems: list[str], flag: str, parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text)
    except ValueError as error:
        problems.append(f"{flag}: {error}")
        return None
