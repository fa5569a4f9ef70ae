"""The commands of scenarios of one node of several shards: its clients, its lanes, its lives."""

from typing import Any

from headrace.base.ids import Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.placement import owner_of
from headrace.ports.host import StopWanted
from headrace.shard.owned.failures import Cause
from tests.nodes import commands
from tests.nodes.commands import _options, _place
from tests.nodes.people import Person
from tests.several.node import Door, Shards
from tests.shard.whole import ROOT, Whole

_SECOND = 100  # ticks


class Commands(commands.Commands):
    """Understands what `nodes` does, except where a shard takes the place of a node.

    Who asks is NAME@SHARD: a client, and the shard on which its connection lives. Where a command
    of `nodes` names a node (hold, release, fail, mend, undeletable, reconcile, files, log) a shard
    stands here.

    shards COUNT [SETTING=VALUE...]   start a node on empty disks
    where STREAM/TOPIC                show which shard has which partitions of a topic
    hold FROM>TO, release FROM>TO     what a shard sends to another does not arrive, then does;
                                      replies do
    fill FROM>TO, drain FROM>TO       a lane takes nothing, then does
    pause SHARD, resume SHARD         it stands still, then goes on with all that waits
    kill SHARD                        it ends alone; its siblings go on
    kill node, cut node, stop node    end all of them: at once; with the power; cleanly
    boot [COUNT]                      start the node again, with another number of shards
    unmakeable SHARD S/T:P COUNT      have a partition, by its numbers, fail to be made so many
                                      times: the next try waits for its pause
    images                            show how far behind the metadata of shards is
    drops SHARD                       show the frames that it has dropped
    """

    def __init__(self) -> None:
        super().__init__()
        self._settings: dict[str, Any] = {}
        self._shards: Shards

    def do_shards(self, count: str, *words: str) -> list[str]:
        self.__init__()  # type: ignore[misc]  # the scenario begins anew
        self._settings = _options(words)
        self._take(Shards(int(count), **self._settings))
        return self._late()

    def _take(self, shards: Shards) -> None:
        self._shards = shards
        self._cluster = _Stage(shards)  # type: ignore[assignment]  # as far as commands know it

    def do_where(self, place: str) -> list[str]:
        stream_name, topic_name = place.split("/")
        stream = self._shards.main.shard.metadata.state.streams.find(stream_name)
        topic = None if stream is None else stream.topics.find(topic_name)
        assert topic is not None
        found: dict[int, list[str]] = {}
        for partition in range(len(topic.partitions)):
            owner = owner_of(topic.namespace(partition), self._shards.count)
            found.setdefault(owner, []).append(str(partition))
        return [f"shard {shard}: {', '.join(found[shard])}" for shard in sorted(found)]

    # Lanes and shards.

    def do_hold(self, node: str, what: str = "") -> None:
        if what:
            super().do_hold(node, what)
        else:
            self._shards.held.add(_pair(node))

    def do_release(self, node: str, what: str = "") -> list[str]:
        if what:
            return super().do_release(node, what)
        self._shards.held.remove(_pair(node))
        self._shards.rest()
        return self._late()

    def do_fill(self, pair: str) -> None:
        self._shards.full.add(_pair(pair))

    def do_drain(self, pair: str) -> None:
        self._shards.full.remove(_pair(pair))

    def do_pause(self, shard: str) -> None:
        self._shards.paused[int(shard)] = None

    def do_resume(self, shard: str) -> list[str]:
        del self._shards.paused[int(shard)]
        self._shards.tick()
        return self._late()

    # Lives.

    def do_kill(self, node: str) -> list[str]:  # type: ignore[override]  # others may be told
        if node == "node":
            self._end(node, is_power_cut=False)
            return []
        self._shards.kill_one(int(node))
        for who in [who for who in self._people if who.endswith(f"@{node}")]:
            del self._people[who]
        return self._late()

    def do_stop(self, node: str) -> None:
        assert node == "node"
        for member in self._shards.members:
            member.step(StopWanted())
        self._shards.tick()
        assert all(member.shard.is_stopped for member in self._shards.members)
        self._end(node, is_power_cut=False)

    def _end(self, node: str, *, is_power_cut: bool) -> None:
        assert node == "node", "the power of a shard alone does not fail"
        self._shards.end(is_power_cut=is_power_cut)
        self._people.clear()

    def do_boot(self, node: str = "") -> list[str]:
        if node:
            self._take(self._shards.with_count(int(node), **self._settings))
        self._shards.start()
        return self._late()

    def do_unmakeable(self, shard: str, place: str, count: str) -> None:
        member = self._shards.members[int(shard)]
        stream, topic, partition = _place(place)
        numbers = Namespace(StreamId(int(stream)), TopicId(int(topic)), PartitionId(partition))
        # A check takes every partition of a whole pass as made: nothing but this makes one fail.
        member.is_checking = False
        pauses = [_SECOND << each for each in range(int(count) - 1)]
        for each in range(int(count)):
            at = member.now - sum(pauses[each:])
            member.shard.partitions._failures.note(pack_namespace(numbers), Cause.ADD, at, "why")

    # What is seen.

    def do_images(self) -> list[str]:
        main = self._shards.main.shard.metadata
        told = []
        for shard in range(1, self._shards.count):
            image = self._shards.image(shard)
            behind = main.commit - image.commit
            is_equal = image.machine.state_hash() == main.machine.state_hash()
            is_level = behind == 0 and is_equal
            told.append(f"shard {shard}: {'level' if is_level else f'{behind} ops behind'}")
        return told

    def do_drops(self, shard: str) -> list[str]:
        drops = self._shards.members[int(shard)].exchange.drops
        return [
            f"{each.variant.value} {each.reason.value}: {each.count}" for each in drops.counts()
        ]

    def do_login(
        self, who: str, user: str = ROOT[0], password: str = ROOT[1].decode()
    ) -> list[str]:
        name, _, home = who.partition("@")
        if who not in self._people:
            client = self._clients.setdefault(name, 1000 + len(self._clients))
            door: Any = Door(self._shards, int(home))
            self._people[who] = Person(name, door, client, self._numbers)
        return super().do_login(who, user, password)


class _Stage:
    """What the commands of `nodes` know of their cluster."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    @property
    def nodes(self) -> list[Whole]:
        return [*self._shards.members]

    def tick(self, count: int = 1) -> None:
        self._shards.tick(count)

    def deliver(self) -> None:
        self._shards.rest()


def _pair(word: str) -> tuple[int, int]:
    sender, _, target = word.partition(">")
    return int(sender), int(target)
