"""The commands of scenarios of whole nodes: metadata, partitions and their files, and clients."""

from collections.abc import Iterable
from typing import Any

from headrace.base.ids import ShardId
from headrace.base.placement import Placement
from headrace.base.units import parse_duration
from headrace.metadata.admission import TopicDefaults
from headrace.ports.disk import FileReplaced
from headrace.ports.host import StopWanted, TurnBegun
from headrace.ports.segments import SegmentFile
from headrace.wire.commands import groups, messages, streams, topics, users
from headrace.wire.commands.clock import ACCEPT_TIME
from headrace.wire.commands.command import Command
from headrace.wire.fields import FieldKind, FieldValue, make_field
from headrace.wire.identifiers import Consumer, First, FromOffset, Last, Next, Strategy
from headrace.wire.numbers import ConsumerKind, UserStatus
from headrace.wire.options import Options, make_options
from tests.nodes.people import Person
from tests.shard.trio import Cluster
from tests.shard.whole import ROOT, Whole

_STORES = {"metadata": 0, "partitions": 1}
_STARTS: dict[str, Strategy] = {"first": First(), "last": Last(), "next": Next()}
_TICK_MICROS = 10_000
_STEPS = 10  # in which a long time passes


class Commands:
    """Understands the commands of a scenario file.

    Who asks is NAME@NODE: a client, and the node that it is connected to. A place is STREAM,
    STREAM/TOPIC, STREAM/TOPIC:PARTITION or STREAM/TOPIC/GROUP. A payload x*100 is a hundred x.

    nodes COUNT [SETTING=VALUE...]    start nodes on empty disks; durability=replicated: topics wait
                                      for no sync unless they say so
    login WHO [USER PASSWORD]         log in, on a new connection if there is none
    leave WHO                         lose the connection
    user WHO USER PASSWORD            create a user
    create WHO PLACE [KEY=VALUE...]   create a stream, a topic (partitions=1 and options), a group
    delete WHO PLACE, purge WHO PLACE, get WHO PLACE
    trim WHO PLACE COUNT              delete the oldest segments
    flush WHO PLACE                   have the segments of a partition synced
    join WHO PLACE                    join a group
    send WHO PLACE PAYLOAD...         send a batch
    resend WHO                        send the last batch of this client again, under its number
    poll WHO PLACE FROM [count=N] [who=ID|GROUP] [auto]
                                      FROM: first, last, next or an offset
    store WHO PLACE OFFSET [who=...], stored WHO PLACE [who=...], forget WHO PLACE [who=...]
    accept WHO                        accept what the clock says as the time
    pass TICKS|DURATION               let time pass; answers that come late are printed
    clock NODE DIFFERENCE             set the wall clock: so far from the true time
    hold NODE WHAT, release NODE WHAT answers of the disk do not come, then do; WHAT: syncs,
                                      segments, all that concerns metadata or partitions, or
                                      checkpoints (that the file of one is written); or turns: what
                                      a node has still to compare waits for other events
    answer NODE WHAT                  answers come that were held, and later ones do not
    fail NODE WORD..., mend NODE      writes and syncs of segments fail, then do no longer
    undeletable NODE WORD...          files of deleted partitions cannot be removed, until `mend`
    siblings NODE COUNT               put files of so many deleted partitions into its folder: some
                                      are of other shards
    reconcile NODE                    show how far its partitions are from what metadata says
    stop NODE, kill NODE, cut NODE    end it: cleanly; at once; with the power
    boot NODE                         start it again
    isolate NODE, heal NODE           it neither hears other nodes nor is heard, then does
    log NODE                          show what the node has to tell its operator
    files NODE                        show its checkpoints and how many segments it has
    repeat COUNT COMMAND              run a command often; show what it printed last
    """

    def __init__(self) -> None:
        self._cluster = Cluster([])
        self._people: dict[str, Person] = {}
        self._clients: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._batches: dict[str, tuple[tuple[str, str, int], list[bytes], int]] = {}

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        printed: list[str] = getattr(self, f"do_{verb}")(*words) or []
        return printed

    # Nodes.

    def do_nodes(self, count: str, *words: str) -> list[str]:
        settings: dict[str, Any] = _options(words)
        durability = settings.pop("durability", "persisted")
        if "shards" in settings:
            settings["placement"] = Placement(ShardId(0), settings.pop("shards"))
        defaults = TopicDefaults(
            durability=durability,
            consumer_offset_durability=durability,
            durability_minimum=durability,
        )
        made = [
            Whole(replica=each, replica_count=int(count), topic_defaults=defaults, **settings)
            for each in range(int(count))
        ]
        self.__init__()  # type: ignore[misc]  # the scenario begins anew
        self._cluster = Cluster(made)
        self._cluster.tick(3)
        return self._late()

    def do_pass(self, time: str) -> list[str]:
        if time.isdigit():
            self._cluster.tick(int(time))
        else:
            for _ in range(_STEPS):
                for node in self._cluster.nodes:
                    node.now += parse_duration(time) // (_STEPS * _TICK_MICROS) - 1
                self._cluster.tick()
        return self._late()

    def do_clock(self, node: str, difference: str) -> None:
        sign = -1 if difference.startswith("-") else 1
        self._node(node).clock_ahead = sign * parse_duration(difference.lstrip("+-"))

    def do_hold(self, node: str, what: str) -> None:
        held = self._node(node)
        match what:
            case "syncs":
                held.is_syncing = False
            case "segments":
                held.is_reading_segments = False
            case "turns":
                held.is_turning = False
            case "checkpoints":
                held.hold_store(_STORES["partitions"], FileReplaced)
            case _:
                held.hold_store(_STORES[what])

    def do_release(self, node: str, what: str) -> list[str]:
        held = self._node(node)
        match what:
            case "syncs":
                held.is_syncing = True
            case "segments":
                held.is_reading_segments = True
            case "turns":
                held.is_turning = True
                if held.has_turn_held:
                    held.has_turn_held = False
                    held.step(TurnBegun())
            case "checkpoints":
                held.release_store(_STORES["partitions"])
            case _:
                held.release_store(_STORES[what])
        self._cluster.tick()
        return self._late()

    def do_answer(self, node: str, what: str) -> list[str]:
        assert what == "checkpoints"
        self._node(node).answer_held(_STORES["partitions"])
        self._cluster.deliver()
        return self._late()

    def do_fail(self, node: str, *words: str) -> None:
        self._node(node).segments.failing = " ".join(words)

    def do_mend(self, node: str) -> None:
        self._node(node).segments.failing = self._node(node).segments.undeletable = None

    def do_undeletable(self, node: str, *words: str) -> None:
        self._node(node).segments.undeletable = " ".join(words)

    def do_siblings(self, node: str, count: str) -> None:
        for number in range(int(count)):
            file = SegmentFile((7 << 32) + number, 1, 0, 0)
            self._node(node).segments.logs[file] = bytearray(b"another's")

    def do_reconcile(self, node: str) -> list[str]:
        found = self._node(node).shard.partitions.reconcile_status()
        return [
            f"wanted {found.wanted}, actual {found.actual}, staged {found.staged}",
            *[f"{each.phase}: {each.partition}" for each in found.tombstoned],
            *[f"{each.cause.value} failed {each.count} times" for each in found.failures],
        ]

    def do_stop(self, node: str) -> None:
        self._node(node).step(StopWanted())
        assert self._node(node).shard.is_stopped
        self.do_kill(node)

    def do_kill(self, node: str) -> None:
        self._end(node, is_power_cut=False)

    def do_cut(self, node: str) -> None:
        self._end(node, is_power_cut=True)

    def _end(self, node: str, *, is_power_cut: bool) -> None:
        self._node(node).end(is_power_cut=is_power_cut)
        self._cluster.down[int(node)] = None
        for who in [who for who in self._people if who.endswith(f"@{node}")]:
            del self._people[who]

    def do_boot(self, node: str) -> list[str]:
        self._node(node).start()
        del self._cluster.down[int(node)]
        self._cluster.tick()
        return self._late()

    def do_isolate(self, node: str) -> None:
        self._cluster.cut[int(node)] = None

    def do_heal(self, node: str) -> None:
        del self._cluster.cut[int(node)]

    def do_log(self, node: str) -> list[str]:
        found = self._node(node).shard.take_findings()
        return [f"{each.kind}: {each.file}: {each.text}" for each in found]

    def do_files(self, node: str) -> list[str]:
        found = self._node(node)
        names = [name for name in sorted(found.disks[1].cached) if name.startswith("checkpoint")]
        return [f"{', '.join(names)}; segments {len(found.segments.logs)}"]

    def do_repeat(self, count: str, *words: str) -> list[str]:
        printed: list[str] = []
        for _ in range(int(count)):
            printed = self.run(" ".join(words))
        return printed[-1:]

    def _node(self, node: str) -> Whole:
        return self._cluster.nodes[int(node)]

    # Clients.

    def do_login(
        self, who: str, user: str = ROOT[0], password: str = ROOT[1].decode()
    ) -> list[str]:
        name, _, node = who.partition("@")
        if who not in self._people:
            client = self._clients.setdefault(name, 1000 + len(self._clients))
            self._people[who] = Person(name, self._node(node), client, self._numbers)
        self._people[who].begin_login(user, password)
        return self._answer(who)

    def do_leave(self, who: str) -> list[str]:
        self._people.pop(who).close()
        self._cluster.deliver()
        return self._late()

    def do_user(self, who: str, user: str, password: str) -> list[str]:
        request = users.CreateUser(
            username=user, password=password.encode(), status=UserStatus.ACTIVE
        )
        return self._ask(who, users.CREATE_USER, request)

    def do_create(self, who: str, place: str, *words: str) -> list[str]:
        options = _options(words)
        match place.split("/"):
            case [stream]:
                return self._ask(who, streams.CREATE_STREAM, streams.CreateStream(stream))
            case [stream, topic]:
                partitions = options.pop("partitions", 1)
                made = topics.CreateTopic(stream, partitions, topic, _topic_options(options))
                return self._ask(who, topics.CREATE_TOPIC, made)
            case path:
                return self._ask(who, groups.CREATE_GROUP, groups.CreateGroup(*path))

    def do_delete(self, who: str, place: str) -> list[str]:
        match place.split("/"):
            case [stream]:
                return self._ask(who, streams.DELETE_STREAM, streams.DeleteStream(stream))
            case [stream, topic]:
                return self._ask(who, topics.DELETE_TOPIC, topics.DeleteTopic(stream, topic))
            case path:
                return self._ask(who, groups.DELETE_GROUP, groups.DeleteGroup(*path))

    def do_purge(self, who: str, place: str) -> list[str]:
        stream, topic, _ = _place(place)
        return self._ask(who, topics.PURGE_TOPIC, topics.PurgeTopic(stream, topic))

    def do_trim(self, who: str, place: str, count: str) -> list[str]:
        request = topics.DeleteSegments(*_place(place), int(count))
        return self._ask(who, topics.DELETE_SEGMENTS, request)

    def do_flush(self, who: str, place: str) -> list[str]:
        request = topics.FlushUnsavedBuffer(*_place(place), fsync=True)
        return self._ask(who, topics.FLUSH_UNSAVED_BUFFER, request)

    def do_get(self, who: str, place: str) -> list[str]:
        match place.split("/"):
            case [stream]:
                return self._ask(who, streams.GET_STREAM, streams.GetStream(stream))
            case [stream, topic]:
                return self._ask(who, topics.GET_TOPIC, topics.GetTopic(stream, topic))
            case path:
                return self._ask(who, groups.GET_GROUP, groups.GetGroup(*path))

    def do_join(self, who: str, place: str) -> list[str]:
        return self._ask(who, groups.JOIN_GROUP, groups.JoinGroup(*place.split("/")))

    def do_send(self, who: str, place: str, *words: str) -> list[str]:
        person = self._people[who]
        payloads = [_payload(each) for each in words]
        self._batches[person.name] = (_place(place), payloads, person.next_number())
        return self.do_resend(who)

    def do_resend(self, who: str) -> list[str]:
        person = self._people[who]
        person.begin_send(*self._batches[person.name])
        return self._answer(who)

    def do_poll(self, who: str, place: str, start: str, *words: str) -> list[str]:
        stream, topic, partition = _place(place)
        options = _options([each for each in words if each != "auto"])
        request = messages.PollMessages(
            consumer=_consumer(options),
            stream=stream,
            topic=topic,
            partition_id=partition,
            strategy=FromOffset(int(start)) if start.isdigit() else _STARTS[start],
            count=options.get("count", 1000),
            auto_commit="auto" in words,
        )
        return self._ask(who, messages.POLL_MESSAGES, request)

    def do_store(self, who: str, place: str, offset: str, *words: str) -> list[str]:
        stream, topic, partition = _place(place)
        request = messages.StoreOffset(
            consumer=_consumer(_options(words)),
            stream=stream,
            topic=topic,
            partition_id=partition,
            offset=int(offset),
        )
        return self._ask(who, messages.STORE_OFFSET, request)

    def do_forget(self, who: str, place: str, *words: str) -> list[str]:
        stream, topic, partition = _place(place)
        request = messages.DeleteOffset(
            consumer=_consumer(_options(words)),
            stream=stream,
            topic=topic,
            partition_id=partition,
        )
        return self._ask(who, messages.DELETE_OFFSET, request)

    def do_stored(self, who: str, place: str, *words: str) -> list[str]:
        request = messages.GetOffset(_consumer(_options(words)), *_place(place))
        return self._ask(who, messages.GET_OFFSET, request)

    def do_accept(self, who: str) -> list[str]:
        return self._ask(who, ACCEPT_TIME)

    def _ask(self, who: str, command: Command[Any, Any], request: Any = None) -> list[str]:
        self._people[who].begin(command, request)
        return self._answer(who)

    def _answer(self, who: str) -> list[str]:
        """Show what a client is told, before any time passes; and what others are told by then."""
        self._cluster.deliver()
        told = list(self._people[who].answers()) or ["no answer yet"]
        return told + self._late()

    def _late(self) -> list[str]:
        return [
            f"{who}: {each}" for who, person in self._people.items() for each in person.answers()
        ]


def _options(words: Iterable[str]) -> dict[str, Any]:
    pairs = (word.partition("=") for word in words)
    return {key: int(value) if value.isdigit() else value for key, _, value in pairs}


def _topic_options(options: dict[str, FieldValue]) -> Options:
    return make_options(
        {
            key: make_field(value, FieldKind.UINT64) if isinstance(value, int) else value
            for key, value in options.items()
        }
    )


def _place(place: str) -> tuple[str, str, int]:
    path, _, partition = place.partition(":")
    stream, topic = path.split("/")
    return stream, topic, int(partition or 0)


def _consumer(options: dict[str, Any]) -> Consumer:
    who = options.get("who", 1)
    kind = ConsumerKind.CONSUMER if isinstance(who, int) else ConsumerKind.GROUP
    return Consumer(kind, who)


def _payload(word: str) -> bytes:
    text, _, count = word.partition("*")
    return text.encode() * int(count or 1)
