"""The options of a consumer, and the settings that result from them."""

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
    """The options of `client.consumer`, besides the topic.

    Attributes:
        name: The name under which offsets are stored; without name or group none are.
        group: The consumer group to join, instead of a name; created if it does not exist.
        partition: The only partition to read; by default all, or those that the group assigns.
        start: Where to start without a stored offset: `"earliest"`, `"latest"`, an offset, a time.
        commit: When to store processed offsets: `"each"`, `"periodic"`, or `"manual"`. ["periodic"]
        commit_every: The interval of periodic commits. ["1 s"]
        count: The maximum number of messages of one poll. [1000]
        wait: How long to wait for a message before iteration ends; None waits forever. [None]
        poll_every: The longest time between two polls of an idle consumer. ["100 ms"]
        on_loss: `"raise"`, or `"skip"` to count lost messages and continue. ["raise"]
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
    """The options, with defaults filled in."""

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
    """Return the settings, with defaults filled in.

    Raises:
        TypeError: There is no such option.
        ValueError: An option is wrong, or two contradict each other.
    """
    refuse_unknown("consumer()", options, ConsumerOptions.__annotations__)
    name, group = options.get("name"), options.get("group")
    is_anonymous = name is None and group is None
    partition = options.get("partition")
    if group is not None and partition is not None:
        raise ValueError("partition: not allowed with a group, which assigns the partitions")
    start = options.get("start", "earliest")
    make_strategy(start)
    if start == "next" or (isinstance(start, int) and partition is None):
        raise ValueError(
            f"start: {start!r} is not allowed: an offset needs one partition, and a consumer with a"
            " name or a group continues after its stored offset by itself"
        )
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
