"""The driver's requests to the server: the logs of partitions, offsets of times, the group.

A server without segment plans is read only by polls: a partition is then distinguished from one
created again under its name by its creation time.
"""

from collections.abc import Mapping
from contextlib import suppress

from headrace.client import AlreadyExists, Client, NotFound, NotOwned, RefusedByServer
from headrace.client.calls.messages import poll_raw
from headrace.client.calls.names import ANONYMOUS
from headrace.client.messages import read_messages
from headrace.spark.edges import EARLIEST, LATEST, Edge
from headrace.spark.offsets import Key, Position, Positions
from headrace.spark.plan import position_of
from headrace.spark.slices import UNBOUNDED
from headrace.wire.commands.segments import SegmentPlan
from headrace.wire.errors import Code
from headrace.wire.identifiers import First, FromTimestamp

_NO_SEGMENTS = UNBOUNDED  # no segment is at or after this offset


def find_logs(
    client: Client, topics: tuple[str, ...], start: Positions | None = None
) -> dict[Key, SegmentPlan]:
    """Return the current log of every partition of the topics.

    With `start` it includes the segments from there on.

    Raises:
        NotFound: A topic does not exist.
    """
    logs = {}
    for topic in topics:
        for partition in client.get_topic(topic).partitions:
            key = Key(topic, partition.id)
            wanted = _NO_SEGMENTS
            if start is not None:
                wanted = start[key].next if key in start else 0
            logs[key] = find_log(client, key, wanted)
    return logs


def find_log(client: Client, key: Key, start: int = _NO_SEGMENTS) -> SegmentPlan:
    """Return the current log of one partition, with its segments from an offset on.

    Raises:
        NotFound: The partition does not exist.
    """
    try:
        return client.plan_segments(key.topic, key.partition, start=start)
    except RefusedByServer as error:
        if error.code != Code.FEATURE_UNAVAILABLE:
            raise
        return _poll_log(client, key)


def latest_of(logs: Mapping[Key, SegmentPlan]) -> dict[Key, Position]:
    """Return the end of every log."""
    return {key: position_of(log, log.next_offset) for key, log in logs.items()}


def resolve_edge(
    client: Client, edge: Edge, logs: Mapping[Key, SegmentPlan], option: str
) -> dict[Key, Position]:
    """Return the offset of an edge in every partition; `option` names it in errors.

    Raises:
        ValueError: It names a partition that does not exist, or an offset after the end.
    """
    named = [Key(topic, each) for topic in edge.offsets for each in edge.offsets[topic]]
    named += [Key(topic, each) for topic in edge.times for each in edge.times[topic]]
    problems = [f"{option}: there is no {key}" for key in named if key not in logs]
    problems += [
        f"{option}: {key} ends at offset {log.next_offset}, which is before {wanted}"
        for key, log in logs.items()
        if (wanted := edge.offset_of(*key)) is not None and wanted > log.next_offset
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return {key: position_of(log, _resolve(client, edge, key, log)) for key, log in logs.items()}


def store_progress(client: Client, group: str, positions: Positions) -> None:
    """Store the progress of a query as offsets of a consumer group, created if missing.

    The group needs no members (O7.3); the stored offset is the last one processed.

    Raises:
        ValueError: The group has members.
    """
    for key, place in sorted(positions.items()):
        if place.next == 0:
            continue
        try:
            _store(client, group, key, place.next - 1)
        except NotOwned:
            raise ValueError(
                f"groupId: {group!r} has members that read {key.topic} themselves; a query needs a"
                " group of its own"
            ) from None


def _store(client: Client, group: str, key: Key, offset: int) -> None:
    try:
        client.store_offset(key.topic, key.partition, offset, group=group)
    except NotFound:  # The server does not say what is missing: stream, topic or group.
        with suppress(AlreadyExists):  # Another query created it first.
            client.create_group(key.topic, group)
        client.store_offset(key.topic, key.partition, offset, group=group)


def _poll_log(client: Client, key: Key) -> SegmentPlan:
    """Return the log of a server without plans, found by a poll."""
    polled = client.ask(poll_raw(key.topic, key.partition, First(), who=ANONYMOUS, count=1))
    messages = read_messages(polled)
    partition = client.get_topic(key.topic).partitions[key.partition]
    is_new = not polled.messages_count and not polled.current_offset
    end = 0 if is_new else polled.current_offset + 1
    return SegmentPlan(
        namespace=0,
        created_revision=partition.created_at,
        history_epoch=0,
        first_offset=messages.first_offset if len(messages) else end,
        next_offset=end,
        folder="",
        lost=(),
        segments=(),
        is_more=False,
    )


def _resolve(client: Client, edge: Edge, key: Key, log: SegmentPlan) -> int:
    offset = edge.offset_of(*key)
    if offset is not None and offset >= 0:
        return offset
    time = edge.time_of(*key)
    if offset is None and time is not None:
        return _find_time(client, key, log, time)
    is_earliest = offset == EARLIEST if offset is not None else edge.word == "earliest"
    assert offset in (None, EARLIEST, LATEST)
    return log.first_offset if is_earliest else log.next_offset


def _find_time(client: Client, key: Key, log: SegmentPlan, time: int) -> int:
    """Return the offset of the first message at or after a time, or the end."""
    call = poll_raw(key.topic, key.partition, FromTimestamp(time), who=ANONYMOUS, count=1)
    messages = read_messages(client.ask(call))
    return min(messages.first_offset, log.next_offset) if len(messages) else log.next_offset
