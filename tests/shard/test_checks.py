"""Parts of a shard that disagree are noticed by `check`, between any two turns."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.shard.front.connections import NO_USER, Connection, Connections, Phase
from headrace.shard.logins.attempt import Attempt
from headrace.shard.owned.local import Local
from headrace.vsr.timeouts import Timer
from headrace.wire.commands import session, streams, topics
from headrace.wire.numbers import Operation, Transport
from headrace.wire.requests import RequestHeader
from tests.shard.whole import ROOT, VERSION, Client, Whole

LOGIN = (RequestHeader(), session.Register(VERSION))
Shatter = Callable[[Any], object]


@pytest.fixture
def node() -> Whole:
    node = Whole()
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 2, "t"))
    client.send("s", "t", [b"one"])
    node.tick(20)
    return node


def check(node: Whole) -> None:
    node.shard.check()
    for plane in (node.shard.metadata.plane, node.shard.data_plane):
        plane.check()


def first(node: Whole) -> int:
    return next(iter(node.shard.partitions.locals))


def local_of(node: Whole) -> Local:
    return node.shard.partitions.locals[first(node)]


def connection_of(node: Whole) -> Connection:
    return next(iter(node.shard.front.connections.all()))


def spend_twice(node: Whole) -> None:
    connection_of(node).spent._numbers &= ~1


def wait_twice(node: Whole) -> None:
    node.shard.front.node._snapshots[1] = 0
    node.shard._room.users._continuations[1] = (0, lambda *_: None)


BREAKS: dict[str, tuple[Shatter, str]] = {
    "a client whose connection is not found": (
        lambda node: node.shard.front.connections._by_client.clear(),
        "a session has one place",
    ),
    "a number that is spent and forgotten": (spend_twice, "the highest number is spent"),
    "a partition of no topic": (
        lambda node: node.shard.partitions._table._of_topic.clear(),
        "every row is one of its topic",
    ),
    "a partition with the group of another": (
        lambda node: setattr(
            node.shard.partitions.locals[first(node)],
            "replica",
            list(node.shard.data_plane.groups.values())[-1],
        ),
        "a partition has the group of its number",
    ),
    "retention of a partition without limits": (
        lambda node: node.shard.partitions.retention._candidates.update({first(node): None}),
        "only limits drop segments",
    ),
    "a purge that nobody proposed": (
        lambda node: node.shard.partitions._awaited._purges.update({first(node): None}),
        "a purge that is applied is forgotten",
    ),
    "an op that is never due": (
        lambda node: node.shard.partitions._awaited.ops.update(
            {first(node): (Operation.LOST_RANGE, 10**6)}
        ),
        "an op that is awaited will be due",
    ),
    "a timer that never runs out": (
        lambda node: node.shard.data_plane._timers._current.update(
            {(first(node), Timer.REPAIR): 10**6}
        ),
        "settings are counted",
    ),
    "a group that changed and is in no checkpoint": (
        lambda node: node.shard.data_plane.checkpoints.dirty.clear(),
        "a group that has not changed is in a checkpoint",
    ),
    "a sync that nobody asked for": (
        lambda node: setattr(node.shard.data_plane._journaling, "_wants_sync", True),
        "who waits for a record has staged some of it",
    ),
    "a group that nobody leads": (
        lambda node: node.shard.data_plane._neighbours._primaries.clear(),
        "every group is led by somebody",
    ),
    "a shard with two ticks": (
        lambda node: setattr(node.shard.clock, "now", node.shard.clock.now + 1),
        "all planes have the same tick",
    ),
    "a request behind an offset that is stored": (
        lambda node: node.shard.front.polls.commits._parked.update({"key": [None]}),
        "nobody waits for a stored offset",
    ),
    "room that no poll holds": (
        lambda node: node.shard.partitions.shared.replies.hold(10**6),
        "who reads holds room for a reply",
    ),
    "partitions that were not told of a checkpoint": (
        lambda node: setattr(node.shard._data_stages, "_checkpoints_done", -1),
        "partitions are told",
    ),
    "a request that waits for nothing": (
        lambda node: node.shard.front.answers.wait(connection_of(node).number, RequestHeader()),
        "no request that waits is forgotten",
    ),
    "a request in two places": (wait_twice, "a request waits in one place"),
    "a request with two snapshots": (
        lambda node: node.shard.front.node._snapshots.update({1: 5, 2: 5}),
        "a request has one snapshot made",
    ),
    "snapshots without a bound": (
        lambda node: node.shard.front.node._snapshots.update(enumerate(range(5))),
        "snapshots that are made are bounded",
    ),
    "a session of nobody": (
        lambda node: setattr(connection_of(node), "user_id", NO_USER),
        "a session is that of a user",
    ),
    "a session of an op that is to come": (
        lambda node: setattr(connection_of(node), "session", 10**9),
        "a session began with an applied op",
    ),
    "a login that nobody goes on with": (
        lambda node: node.shard._room.logins._attempts.update(
            {connection_of(node).number: Attempt(connection_of(node).number, *LOGIN)}
        ),
        "a login that is left alone waits for somebody",
    ),
    "files that go before their partition": (
        lambda node: node.shard.partitions._tombstones.bury(
            first(node), local_of(node).target.created_revision, None, sequence=10**6
        ),
        "files of a partition that is here stay",
    ),
    "a partition that metadata does not describe": (
        lambda node: setattr(
            local_of(node), "target", msgspec.structs.replace(local_of(node).target, bytes_max=1)
        ),
        "a partition is as metadata says",
    ),
    "a fence that is not reported": (
        lambda node: node.shard.partitions.shared.fenced.update({local_of(node).machine: None}),
        "a fence is reported in the turn",
    ),
    "an op that is proposed once": (
        lambda node: node.shard.partitions._awaited.put(first(node), Operation.LOST_RANGE, 10**6),
        "an op is proposed again in time",
    ),
    "a report from the future": (
        lambda node: node.shard.partitions.retention._held._held_told.update({None: (1, 10**9)}),
        "nothing was seen in the future",
    ),
    "a second group of metadata": (
        lambda node: node.shard.metadata.plane.groups.update({99: node.shard.metadata.replica}),
        "metadata is one group",
    ),
    "a checkpoint that is written before it is captured": (
        lambda node: setattr(node.shard.data_plane.checkpoints, "is_writing", True),
        "the flag is that of the phase",
    ),
    "an end without a last checkpoint": (
        lambda node: setattr(node.shard.data_plane.inbox, "has_ended", True),
        "the last checkpoint is the end",
    ),
    "a time that was never believed": (
        lambda node: setattr(node.shard.clock.time, "_newest", 0),
        "the newest time that was believed is known",
    ),
    "a stage that is left for the next turn": (
        lambda node: setattr(node.shard._data_stages.again, "is_awake", True),
        "what is stored again is stored in the same turn",
    ),
}


def test_a_sound_shard_passes(node: Whole) -> None:
    check(node)


@pytest.mark.parametrize("name", BREAKS)
def test_parts_that_disagree_are_noticed(node: Whole, name: str) -> None:
    shatter, reason = BREAKS[name]
    shatter(node)
    with pytest.raises(AssertionError, match=reason):
        check(node)


def test_a_connection_goes_through_its_phases(node: Whole) -> None:
    client = Client(node, 77)
    found = node.shard.front.connections.get(client.connection)
    assert found is not None
    phases = [found.phase]
    client.login(*ROOT)
    phases.append(found.phase)
    client.ask(session.LOGOUT)
    phases.append(found.phase)
    assert phases == [Phase.FREE, Phase.BOUND, Phase.FREE]


def test_a_session_that_is_over_is_not_bound_again() -> None:
    connections = Connections()
    found: Connection = connections.open(1, Transport.TCP, "127.0.0.1:9", 0)
    found.enter(Phase.OVER)
    with pytest.raises(AssertionError, match="OVER"):
        found.enter(Phase.BOUND)
    found.enter(Phase.FREE)
