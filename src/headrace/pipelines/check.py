"""Validates a job without running it, and reports what could not be validated.

Each finding is a line: the subject, and whether it is right, wrong, or was not checked.
"""

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, cast

import headrace
from headrace.client.errors import HeadraceError, NotFound, Unauthenticated, Unauthorized
from headrace.pipelines.checkpoint import DEAD_LETTERS, QUERY, read_state
from headrace.pipelines.declared import Pipeline, Sink
from headrace.pipelines.sink_keys import RULES

if TYPE_CHECKING:
    from headrace.client.session.settings import ConnectOptions

_ANSWER_TIMEOUT = "3 s"


class Verdict(StrEnum):
    """The result for one subject."""

    RIGHT = "ok"
    WRONG = "wrong"
    UNKNOWN = "not checked"


@dataclass(frozen=True)
class Finding:
    """One checked subject."""

    what: str
    verdict: Verdict
    words: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.what}{f': {self.words}' if self.words else ''}"


def check_pipeline(pipeline: Pipeline) -> Iterator[Finding]:
    """Return what can be checked of a job without Spark; its declaration is already valid."""
    yield Finding(f"{pipeline.name}: declaration", Verdict.RIGHT)
    for what, sink in (("sink", pipeline.sink), ("dead_letters", pipeline.dead_letters)):
        if sink is not None:
            yield from _check_sink(f"{pipeline.name}: {what}", sink)
    yield _check_folder(f"{pipeline.name}: checkpoint", pipeline.checkpoint)
    for part in (QUERY, DEAD_LETTERS):
        yield from _check_state(pipeline, part)
    yield from _check_topics(pipeline)


def _check_sink(what: str, sink: Sink) -> Iterator[Finding]:
    module = RULES[sink.kind].module
    if module and importlib.util.find_spec(module) is None:
        words = f"{module} is not installed: pip install 'headrace[lake]'"
        yield Finding(f"{what} {sink.kind}", Verdict.WRONG, words)
    if sink.path is not None:
        yield _check_folder(f"{what} {sink.kind}", sink.path)


def _check_folder(what: str, folder: Path) -> Finding:
    """Check that the run can create the folder, if it does not exist."""
    nearest = folder.resolve()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        return Finding(what, Verdict.WRONG, f"{nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(what, Verdict.WRONG, f"{nearest} is not writable for this user")
    return Finding(what, Verdict.RIGHT, str(folder))


def _check_state(pipeline: Pipeline, part: str) -> Iterator[Finding]:
    folder = pipeline.checkpoint / part
    try:
        read_state(folder)
    except (OSError, ValueError, KeyError) as error:
        yield Finding(f"{pipeline.name}: {folder}", Verdict.WRONG, f"is damaged: {error}")


def _check_topics(pipeline: Pipeline) -> Iterator[Finding]:
    topics = list(dict.fromkeys(topic for each in pipeline.sources for topic in each.topics))
    login = dict(pipeline.connection)
    address = login.pop("address", None)
    options = cast("ConnectOptions", login | {"timeout": _ANSWER_TIMEOUT})
    try:
        with headrace.connect(address, **options) as client:
            for topic in topics:
                yield _check_topic(f"{pipeline.name}: topic {topic}", client, topic)
    except (ValueError, Unauthenticated, Unauthorized) as error:
        yield Finding(f"{pipeline.name}: connection", Verdict.WRONG, str(error))
    except (HeadraceError, OSError) as error:
        what = f"{pipeline.name}: topics {', '.join(topics)}"
        yield Finding(what, Verdict.UNKNOWN, str(error))


def _check_topic(what: str, client: headrace.Client, topic: str) -> Finding:
    try:
        found = client.get_topic(topic)
    except NotFound as error:
        return Finding(what, Verdict.WRONG, str(error))
    return Finding(what, Verdict.RIGHT, f"{len(found.partitions)} partitions")
