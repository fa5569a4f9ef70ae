"""What a consumer is told to do: its options, and the settings that they amount to."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from headrace.base.nearest import refuse_unknown
from headrace.client.calls.messages import COUNT_MAX, Start, make_strategy
from headrace.client.calls.names import ANONYMOUS, make_consumer
from headrace.client.session.settings import Duration, read_seconds
from headrace.wire.identifiers import Consumer, Identifier

CommitMode: TypeAlias = Literal["each", "periodic", "manual"]
OnLoss: TypeAlias = Literal["raise", "skip"]


class ConsumerOptions(TypedDict, total=False):
    """What `client.consumer` takes beside the topic.

    Attributes:
        name: Under which the offset is stored; without name and group nothing is.
        group: The consumer group to be a member of, instead of a name; made if there is none.
        partition: The only partition to read; without it all, or those that the group deals.
        start: Where to begin where nothing is stored: `"earliest"`, `"latest"`, an offset, a time.
        commit: When what is done is stored: `"each"`, `"periodic"`, or `"manual"`. ["periodic"]
        commit_every: How often, if periodic. ["1 s"]
        count: The most messages of one poll. [1000]
        wait: How long to wait for a message before iterating ends; None is for ever. [None]
        poll_every: The longest time between two polls of an idle consumer. ["100 ms"]
        on_loss: `"raise"`, or `"skip"` to count what is lost and go on. ["raise"]
    """

    name: Identifier
    group: Identifier
    partition: int
    start: Start
    commit: CommitMode
    commit_every: Duration
    count: int
    wait: Duration | None
    poll_every: Duration
    on_loss: OnLoss


@dataclass(frozen=True)
class ConsumerSettings:
    """The options, made whole."""

    who: Consumer
    name: Identifier | None
    group: Identifier | None
    partition: int | None
    start: Start
    commit: CommitMode
    commit_seconds: float
    count: int
    wait_seconds: float | None
    idle_seconds_max: float
    on_loss: OnLoss


def read_consumer_options(options: ConsumerOptions) -> ConsumerSettings:
    """Make options whole.

    Raises:
        TypeError: There is no such option.
        ValueError: One is wrong, or two contradict each other.
    """
    refuse_unknown("consumer()", options, ConsumerOptions.__annotations__)
    name, group = options.get("name"), options.get("group")
    is_anonymous = name is None and group is None
    partition = options.get("partition")
    if group is not None and partition is not None:
        raise ValueError("partition: a group deals its partitions out by itself")
    start = options.get("start", "earliest")
    make_strategy(start)
    if start == "next" or (isinstance(start, int) and partition is None):
        raise ValueError(f"start: {start!r} goes with one partition, or is what a name gives")
    wait = options.get("wait")
    count = options.get("count", 1000)
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"count: {count} is not within 1 to {COUNT_MAX}")
    return ConsumerSettings(
        who=ANONYMOUS if is_anonymous else make_consumer(name, group),
        name=name,
        group=group,
        partition=partition,
        start=start,
        commit=_read_commit(options, is_anonymous=is_anonymous),
        commit_seconds=read_seconds("commit_every", options.get("commit_every", 1.0)),
        count=count,
        wait_seconds=None if wait is None else read_seconds("wait", wait, zero=True),
        idle_seconds_max=read_seconds("poll_every", options.get("poll_every", 0.1)),
        on_loss=_read_on_loss(options),
    )


def _read_commit(options: ConsumerOptions, *, is_anonymous: bool) -> CommitMode:
    commit = options.get("commit", "manual" if is_anonymous else "periodic")
    if commit not in ("each", "periodic", "manual"):
        raise ValueError(f"commit: {commit!r} is none of each, periodic, manual")
    if is_anonymous and commit != "manual":
        raise ValueError(f"commit: {commit!r} needs a name or a group to store an offset for")
    return commit


def _read_on_loss(options: ConsumerOptions) -> OnLoss:
    on_loss = options.get("on_loss", "raise")
    if on_loss not in ("raise", "skip"):
        raise ValueError(f"on_loss: {on_loss!r} is none of raise, skip")
    return on_loss
