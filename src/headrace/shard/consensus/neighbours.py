"""What this node and the others tell each other of their groups, and who of them is alive.

A heartbeat to every other node carries what is new of the groups, questions whether a node stays in
the views that we lead, and promises to stay in those that it leads (O6.2).

Invariants: nothing of an earlier life of a node counts (NW8), nor of another incarnation of a
            partition (RC-20).
"""

from collections.abc import Mapping

import msgspec

from headrace.base.prng import Prng
from headrace.ports.network import SendFrame
from headrace.shard.config import PlaneConfig
from headrace.shard.consensus.peers import Peer
from headrace.vsr.events import PrimaryBeat
from headrace.vsr.replica import Replica
from headrace.vsr.state import Shared
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.heartbeats import GroupBeat, NodeHeartbeatHeader, decode_beats
from headrace.wire.replica.kinds import ReplicaHeader

_UNHEARD_GROUPS_MAX = 4096
# They keep the header that their first primary sealed, whoever passes them on.
_PASSED_ON = (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE)


class Neighbours:
    """All other nodes, as one plane sees them; its groups and its time are shared with it."""

    def __init__(
        self, config: PlaneConfig, groups: Mapping[int, Replica], shared: Shared, prng: Prng
    ) -> None:
        self._config = config
        self._groups = groups
        self._shared = shared
        self._peers = {
            replica: Peer(replica, 0, prng.fork(f"peer {replica}").below(1 << 62))
            for replica in range(config.replica_count)
            if replica != config.replica
        }
        self._beats: dict[int, GroupBeat | None] = {}
        # Who leads each group as it is here, and the groups of each.
        self._primaries: dict[int, int] = {}
        self._led: dict[int, dict[int, None]] = {each: {} for each in range(config.replica_count)}
        self._due = 0
        self._counter = 0
        self._asked: dict[int, int] = {}  # groups that must be current, and when it was asked last
        # What was told of groups that are not here yet, by group and sender: it is told once.
        self._unheard: dict[int, dict[int, GroupBeat]] = {}

    def note(self, replica: Replica) -> None:
        """Have the others told, if there is something new to say of a group; note who leads it."""
        self.note_primary(replica)
        beat = replica.beat()
        if beat != self._beats.get(replica.group):
            self._beats[replica.group] = beat
            for peer in self._peers.values():
                peer.change(replica.group)

    def forget(self, group: int) -> None:
        """Forget a group: heartbeats name it no more."""
        assert group not in self._groups, "a group that is here is not forgotten"
        primary = self._primaries.pop(group, None)
        if primary is not None:
            del self._led[primary][group]
        self._beats.pop(group, None)
        self._asked.pop(group, None)
        for peer in self._peers.values():
            peer.forget(group)

    def note_primary(self, replica: Replica) -> None:
        """Note who leads a group; of one that is gone nobody does."""
        group, primary = replica.group, replica.state.primary
        before = self._primaries.get(group)
        if before == primary or self._groups.get(group) is not replica:
            return
        if before is not None:
            del self._led[before][group]
        self._primaries[group] = primary
        self._led[primary][group] = None

    def ask(self, group: int) -> None:
        """Have the others asked to stay in the view of a group, for as long as this is called."""
        assert group in self._groups, "only of a group that is here it is asked"
        self._asked[group] = self._shared.now

    def hurry(self) -> None:
        """Send the next heartbeat with the next tick."""
        self._due = self._shared.now

    # What is sent.

    def make_heartbeats(self) -> list[SendFrame]:
        """Return a heartbeat for every other node, if it is time."""
        now, timeouts = self._shared.now, self._config.timeouts
        if not self._peers or now < self._due:
            return []
        self._due = now + timeouts.heartbeat_interval
        self._counter += 1
        frames: list[SendFrame] = []
        for peer in self._peers.values():
            beats = [*self._make_questions(), *self._make_promises(peer), *self._make_news(peer)]
            frame = peer.make_frame(
                cluster=self._config.cluster,
                own_replica=self._config.replica,
                life=self._shared.life,
                journal=self._config.journal,
                counter=self._counter,
                beats=beats,
            )
            peer.note_sent(now, oldest=now - timeouts.heartbeat_timeout)
            frames.append(SendFrame(peer.replica, frame))
        return frames

    def _make_questions(self) -> list[GroupBeat]:
        """Ask to stay in our views, for groups of which somebody wanted to know what is current."""
        oldest = self._shared.now - self._config.timeouts.heartbeat_timeout
        self._asked = {group: asked for group, asked in self._asked.items() if asked > oldest}
        beats = [self._groups[group].beat() for group in self._asked]
        return [
            msgspec.structs.replace(beat, is_asking=True)
            for beat in beats
            if beat is not None and not beat.is_declined
        ]

    def _make_promises(self, peer: Peer) -> list[GroupBeat]:
        """Promise to stay in views that a peer leads, where it asked for that and we can."""
        asks, peer.asks = peer.asks, {}
        promising = [
            (self._groups[group], view)
            for group, view in asks.items()
            if self._groups[group].promise(view)
        ]
        return [
            GroupBeat(
                replica.group,
                view,
                commit=0,
                is_declined=False,
                origin=replica.origin,
                is_promise=True,
            )
            for replica, view in promising
        ]

    def _make_news(self, peer: Peer) -> list[GroupBeat]:
        beats: list[GroupBeat] = []
        for group in peer.untold():
            beat = self._beats.get(group)
            if beat is None:
                peer.forget(group)
            else:
                beats.append(beat)
        return beats

    # What is heard.

    def admits(self, sender: int, kind: FrameKind, header: ReplicaHeader) -> bool:
        """Whether a frame is of the node that its link belongs to, and of its latest start."""
        is_passed_on = kind in _PASSED_ON
        if (
            header.cluster != self._config.cluster
            or sender not in self._peers
            or not (is_passed_on or sender == header.replica)
        ):
            self._shared.probes.hit("frame.foreign")
            return False
        if not is_passed_on and not self._is_of_latest_life(sender, header.life):
            self._shared.probes.hit("frame.stale")
            return False
        return True

    def _is_of_latest_life(self, sender: int, life: int) -> bool:
        """Whether a frame is of the sender's latest start that we know of (NW8).

        A vote that a replica has forgotten must not count once it has promised something else.
        What is passed on is judged by its view and chain.
        """
        peer = self._peers[sender]
        peer.life = max(peer.life, life)
        return life == peer.life

    def find_group(self, group: int, origin: int) -> Replica | None:
        """Return the group that a frame is for, if it is of this incarnation (RC-20)."""
        replica = self._groups.get(group)
        if replica is None:
            self._shared.probes.hit("frame.no_such_group")  # It may be about to be made here.
            return None
        if replica.origin == origin:
            return replica
        self._shared.probes.hit("frame.other_incarnation")
        return None

    def hear(
        self, sender: int, header: NodeHeartbeatHeader, body: bytes
    ) -> list[tuple[Replica, PrimaryBeat]]:
        """Take a heartbeat; return what it tells of groups that the sender leads."""
        told: list[tuple[Replica, PrimaryBeat]] = []
        peer = self._peers[sender]
        peer.hear(header, self._shared.now)
        for beat in decode_beats(body):
            replica = self.find_group(beat.group, beat.origin)
            if replica is None:
                self._keep(sender, beat)
                continue
            if beat.is_promise:
                self._hear_promise(peer, replica, beat.view, header.acknowledged)
                continue
            if beat.is_asking:
                peer.asks[beat.group] = beat.view
                if not replica.is_bound:  # Else a promise runs, and the next beat is soon enough.
                    self.hurry()
            if beat.view % self._config.replica_count == sender:
                event = PrimaryBeat(sender, beat.view, beat.commit, beat.is_declined)
                told.append((replica, event))
        return told

    def _keep(self, sender: int, beat: GroupBeat) -> None:
        """Keep what a primary says of a group that may be about to be made here."""
        if not beat.is_promise and beat.view % self._config.replica_count == sender:
            self._unheard.setdefault(beat.group, {})[sender] = beat
            if len(self._unheard) > _UNHEARD_GROUPS_MAX:
                del self._unheard[next(iter(self._unheard))]

    def take_unheard(self, replica: Replica) -> list[PrimaryBeat]:
        """Return what was heard of a group before it was here."""
        return [
            PrimaryBeat(sender, beat.view, beat.commit, beat.is_declined)
            for sender, beat in self._unheard.pop(replica.group, {}).items()
            if beat.origin == replica.origin
        ]

    def _hear_promise(self, peer: Peer, replica: Replica, view: int, number: int) -> None:
        """Count on a promise from when we sent the last that its maker had heard."""
        sent = peer.sent_at(number)
        if sent is not None:
            assert sent <= self._shared.now, "a promise is counted from a tick that has been"
            replica.hear_promise(peer.replica, view, sent)

    def find_silent(self) -> list[Replica]:
        """Return the groups whose primary's node has gone silent, once in each such time."""
        oldest = self._shared.now - self._config.timeouts.heartbeat_timeout
        silent = [peer for peer in self._peers.values() if peer.heard < oldest]
        for peer in silent:
            peer.heard = self._shared.now
        return [self._groups[group] for peer in silent for group in self._led[peer.replica]]

    def check(self) -> None:
        """Assert that heartbeats speak of the groups that are here, and of who leads them."""
        now, groups = self._shared.now, self._groups
        assert self._primaries.keys() == groups.keys(), "every group is led by somebody"
        led = {group: primary for primary, its in self._led.items() for group in its}
        assert led == self._primaries, "who leads a group has it among its own"
        assert sum(map(len, self._led.values())) == len(led), "a group is led by one"
        for group, primary in self._primaries.items():
            assert groups[group].state.primary == primary, "who leads a group is noted"
        assert self._beats.keys() <= groups.keys(), "nothing is told of a group that is gone"
        assert self._asked.keys() <= groups.keys(), "nothing is asked of a group that is gone"
        assert len(self._unheard) <= _UNHEARD_GROUPS_MAX, "what is kept of others is bounded"
        assert len(self._peers) == self._config.replica_count - 1, "all others are known"
        assert all(asked <= now for asked in self._asked.values()), (
            "nothing was asked in the future"
        )
        senders = {sender: None for told in self._unheard.values() for sender in told}
        assert senders.keys() <= self._peers.keys(), "only others tell something"
        interval = self._config.timeouts.heartbeat_interval
        assert self._due <= now + interval, "the next heartbeat is within an interval"
        assert not self._counter or now <= self._due, "a heartbeat that is due is sent"
        for group, beat in self._beats.items():
            assert beat == groups[group].beat(), "what is told of a group is how it is"
        self._check_unheard()
        for peer in self._peers.values():
            self._check_peer(peer)

    def _check_unheard(self) -> None:
        """Assert that what was told of groups that were not here was taken when they came."""
        for group, told in self._unheard.items():
            replica = self._groups.get(group)
            for sender, beat in told.items():
                assert beat.group == group, "what is told of a group is kept with it"
                leader = beat.view % self._config.replica_count
                assert leader == sender, "only who leads a group is heard"
                is_other = replica is None or replica.origin != beat.origin
                assert is_other, "a group that is here has heard what was told of it"

    def _check_peer(self, peer: Peer) -> None:
        """Assert that a node is told of groups that are here, and is missed when it is silent."""
        now, timeout = self._shared.now, self._config.timeouts.heartbeat_timeout
        peer.check(now, frames_count=self._counter, remembered_ticks=timeout)
        groups = self._groups
        assert peer.asks.keys() <= groups.keys(), "nothing is promised of a group that is gone"
        assert all(group in self._beats for group in peer.untold()), "there is something to tell"
        assert self._peers[peer.replica] is peer, "a node is found by its number"
        assert not self._counter or now - peer.heard <= timeout, "who is silent is missed in time"
