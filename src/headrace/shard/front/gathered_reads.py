"""On shard 0 of several: reads whose answer needs facts of other shards (O5.9).

```
begin -> judged: refused, or nothing to ask      answered at once
      -> asked, and it waits here, at most 3 s -> told: judged again and answered, as with one shard
```

Flow: route, reply.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace.base.ids import GroupId
from headrace.base.placement import Placement
from headrace.metadata.access import NOWHERE, check_access, reach
from headrace.metadata.access import Scope as AccessScope
from headrace.metadata.state import Stream, Topic
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.front.others import Others
from headrace.shard.metadata import Metadata
from headrace.wire.bus.feed import Subject
from headrace.wire.bus.gathered import ALL, SCOPE, Scope
from headrace.wire.codec import encode
from headrace.wire.commands import holders, reconcile, shards, streams, system, topics
from headrace.wire.commands.command import Command
from headrace.wire.commands.counters import GET_COUNTERS, GetCounters
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import SnapshotType
from headrace.wire.requests import RequestHeader

# In the tables each command has a body of its own type.
AnyCommand: TypeAlias = Command[Any, Any]
Read: TypeAlias = Callable[[Connection, RequestHeader, Any], Any]

# Takes the ticket of a request, the subject, what was told by whom, and who is missing.
Told: TypeAlias = Callable[[int, int, Mapping[int, Any], tuple[int, ...]], None]

# Archives that tell of the shards.
_TELLING = (SnapshotType.RESOURCE_USAGE, SnapshotType.ALL)
_COMMANDS: tuple[AnyCommand, ...] = (
    system.GET_STATS,
    system.GET_SNAPSHOT,
    GET_COUNTERS,
    shards.GET_SHARDS,
    reconcile.GET_RECONCILE,
    streams.GET_STREAM,
    streams.GET_STREAMS,
    topics.GET_TOPIC,
    topics.GET_TOPICS,
    holders.GET_HOLDERS,
)


class Ask(NamedTuple):
    """What must be known of which shards before a read can be answered."""

    subject: Subject
    members: tuple[int, ...]
    commit: int = 0  # of the metadata that the answers must know
    body: bytes = b""


class Asking(Protocol):
    """The way to other shards."""

    @property
    def has_room(self) -> bool:
        """Whether one more question can be asked."""

    def ask(self, ticket: int, ask: Ask) -> None:
        """Ask for the request of a ticket; `GatheredReads.on_told` gets what comes of it."""


class GatheredReads:
    """The reads that wait for other shards, by the tickets of their requests."""

    def __init__(
        self, placement: Placement, metadata: Metadata, answers: Answers, others: Others
    ) -> None:
        assert placement.shard_count > 1, "who is alone asks nobody"
        self._placement = placement
        self._metadata = metadata
        self._answers = answers
        self.others = others
        self._siblings = tuple(range(1, placement.shard_count))
        self.asking: Asking  # whoever has the bus sets it
        self._answered: Mapping[int, Read] = {}
        self._make_snapshot: Callable[[int, Any], None]
        self._waiting: dict[int, Any] = {}  # requests, by ticket
        self._commands = {command.code: command for command in _COMMANDS}
        self._asks: dict[int, Callable[[Connection, Any], Ask]] = {
            system.GET_STATS.code: self._of_stats,
            system.GET_SNAPSHOT.code: self._of_snapshot,
            GET_COUNTERS.code: self._of_counters,
            shards.GET_SHARDS.code: self._of_shards,
            reconcile.GET_RECONCILE.code: self._of_reconcile,
            streams.GET_STREAM.code: self._of_stream,
            streams.GET_STREAMS.code: self._of_streams,
            topics.GET_TOPIC.code: self._of_topic,
            topics.GET_TOPICS.code: self._of_topics,
            holders.GET_HOLDERS.code: self._of_holders,
        }
        assert self._asks.keys() == self._commands.keys(), "every such read says what it asks"

    def take_over(
        self, answered: Mapping[int, Read], make_snapshot: Callable[[int, Any], None]
    ) -> dict[int, Read]:
        """Take who answers reads once everything is known; return who begins them."""
        self._answered, self._make_snapshot = answered, make_snapshot
        unanswered = [code for code in self._commands if code not in answered]
        assert unanswered == [system.GET_SNAPSHOT.code], "each is answered as with one shard"
        return dict.fromkeys(self._commands, self.begin)

    def begin(self, connection: Connection, header: RequestHeader, request: object) -> None:
        """Ask for what a read needs; one that needs nothing is answered at once.

        Raises:
            RefusedError: It is refused.
        """
        self._check_current()
        ask = self._asks[header.code](connection, request)
        if ask.members and not self.asking.has_room:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED, what="too many reads wait")
        ticket = self._answers.wait(connection.number, header)
        assert ticket not in self._waiting, "a ticket is given once"
        self._waiting[ticket] = request
        if ask.members:
            self.asking.ask(ticket, ask)
        else:
            self.on_told(ticket, ask.subject, {}, ())

    def on_told(
        self, ticket: int, subject: int, told: Mapping[int, Any], missing: tuple[int, ...]
    ) -> None:
        """Answer a read by what other shards have told; some may be missing."""
        request = self._waiting.pop(ticket)
        self.others.take(subject, told, missing)
        self._answers.resume(ticket, lambda: self._answer(ticket, request))
        self.others.leave()
        assert ticket not in self._waiting, "a read is answered once"

    def _answer(self, ticket: int, request: object) -> bool:
        """Answer a read as one that needs no other shard; return whether that is done."""
        waiting = self._answers.get(ticket)
        assert waiting is not None
        connection = self._answers.connections.bound(waiting.connection)
        self._check_current()
        code = waiting.header.code
        assert code in self._commands, "only such reads wait here"
        if code == system.GET_SNAPSHOT.code:
            self._make_snapshot(ticket, request)
            return False
        reply = self._answered[code](connection, waiting.header, request)
        body = self._commands[code].encode_reply(reply)
        self._answers.reply(connection.number, waiting.header, body)
        return True

    def _check_current(self) -> None:
        if not self._metadata.is_current:
            raise RefusedError(Code.TRANSIENT_NOT_ACCEPTED)

    # What reads ask; each refuses whoever may not.

    def _check(self, connection: Connection, code: int, scope: AccessScope = NOWHERE) -> None:
        check_access(self._metadata.state, connection.user_id, code, scope)

    def _of_stats(self, connection: Connection, _: None) -> Ask:
        self._check(connection, system.GET_STATS.code)
        return Ask(Subject.SHARD, self._siblings, self._metadata.commit)

    def _of_snapshot(self, connection: Connection, request: system.GetSnapshot) -> Ask:
        self._check(connection, system.GET_SNAPSHOT.code)
        is_telling = any(each in _TELLING for each in request.types)
        return Ask(Subject.SNAPSHOT, self._siblings if is_telling else ())

    def _of_counters(self, connection: Connection, request: GetCounters | None) -> Ask:
        self._check(connection, GET_COUNTERS.code)
        members = self._siblings
        if request is not None:
            members = tuple([each for each in members if each == request.shard])
        return Ask(Subject.COUNTERS, members)

    def _of_shards(self, connection: Connection, _: None) -> Ask:
        self._check(connection, shards.GET_SHARDS.code)
        return Ask(Subject.SHARD, self._siblings)

    def _of_reconcile(self, connection: Connection, _: None) -> Ask:
        self._check(connection, reconcile.GET_RECONCILE.code)
        return Ask(Subject.RECONCILER, self._siblings)

    def _of_streams(self, connection: Connection, _: None) -> Ask:
        self._check(connection, streams.GET_STREAMS.code)
        return self._of_sizes(self._metadata.state.streams, Scope())

    def _of_stream(self, connection: Connection, request: streams.GetStream) -> Ask:
        self._check(connection, streams.GET_STREAM.code, AccessScope(request.stream))
        return self._of_one_stream(self._metadata.state.streams.find(request.stream))

    def _of_topics(self, connection: Connection, request: topics.GetTopics) -> Ask:
        self._check(connection, topics.GET_TOPICS.code, AccessScope(request.stream))
        return self._of_one_stream(self._metadata.state.streams.find(request.stream))

    def _of_one_stream(self, stream: Stream | None) -> Ask:
        if stream is None:
            return Ask(Subject.SIZES, ())
        return self._of_sizes((stream,), Scope(stream.id))

    def _of_topic(self, connection: Connection, request: topics.GetTopic) -> Ask:
        scope = AccessScope(request.stream, request.topic)
        self._check(connection, topics.GET_TOPIC.code, scope)
        stream = self._metadata.state.streams.find(request.stream)
        topic = None if stream is None else stream.topics.find(request.topic)
        if stream is None or topic is None:
            return Ask(Subject.SIZES, ())
        body = encode(SCOPE, Scope(stream.id, topic.id))
        return Ask(Subject.SIZES, self._owners((topic,)), self._metadata.commit, body)

    def _of_holders(self, connection: Connection, request: holders.GetHolders) -> Ask:
        state, code = self._metadata.state, holders.GET_HOLDERS.code
        topic = reach(state, connection.user_id, code, request.stream, request.topic)
        stream = state.streams.find(request.stream)
        assert stream is not None
        assert stream.topics.find(topic.id) is topic, "a topic is in its stream"
        body = encode(SCOPE, Scope(stream.id, topic.id))
        return Ask(Subject.HOLDERS, self._owners((topic,)), self._metadata.commit, body)

    def _of_sizes(self, found: Iterable[Stream], scope: Scope) -> Ask:
        assert scope.topic_id == ALL, "streams are asked for whole"
        owners = self._owners(topic for stream in found for topic in stream.topics)
        return Ask(Subject.SIZES, owners, self._metadata.commit, encode(SCOPE, scope))

    def _owners(self, found: Iterable[Topic]) -> tuple[int, ...]:
        """Return the other shards that have partitions of topics, in order."""
        owners: dict[int, None] = {}
        for topic in found:
            for partition_id in range(len(topic.partitions)):
                owners[self._placement.owner(GroupId(topic.namespace(partition_id)))] = None
                if len(owners) == self._placement.shard_count:
                    return self._siblings
        owners.pop(self._placement.shard, None)
        assert owners.keys() <= dict.fromkeys(self._siblings).keys(), "all are of this node"
        return tuple(sorted(owners))

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        return list(self._waiting)

    def check(self) -> None:
        """Assert that what waits is a read of this kind, and that nothing is left of others."""
        self.others.check()
        for ticket in self._waiting:
            waiting = self._answers.get(ticket)
            if waiting is not None:
                assert waiting.header.code in self._commands, "only such reads wait here"
                assert waiting.header.ticket == 0, "no group has it"
