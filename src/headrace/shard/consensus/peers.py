"""The other nodes: whether they are alive, and what they have been told.

One heartbeat frame per pair of nodes carries the groups that changed, each until the other node has
acknowledged a frame that told it; so a lost frame loses nothing and an idle group costs nothing.
"""

from collections import deque

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.wire.replica.heartbeats import (
    NODE_HEARTBEAT,
    GroupBeat,
    NodeHeartbeatHeader,
    encode_beats,
)
from headrace.wire.replica.seals import seal


class Peer:
    """One other node."""

    def __init__(self, replica: int, now: int, first_number: int) -> None:
        """Make a peer; `first_number` differs with every start.

        Otherwise the other node could acknowledge, by number, a frame of an earlier life.
        """
        self.replica = replica
        self.heard = now  # when it was last known to be alive
        self.life = 0  # its latest start that we have heard of
        self._counter = -1
        self._received = 0  # the highest number of its frames
        self._first = self._sent = first_number  # the highest number of ours
        self._untold: dict[int, int] = {}  # group -> the first frame that told it, 0 for none yet
        self._sent_at: deque[tuple[int, int]] = deque()  # numbers of frames, and their ticks
        self.asks: dict[int, int] = {}  # group -> the view in which it wants us to stay

    def change(self, group: int) -> None:
        """Note that a group has something new to tell."""
        self._untold[group] = 0

    def untold(self) -> list[int]:
        """Return the groups that the next frame must list."""
        return list(self._untold)

    def make_frame(
        self,
        *,
        cluster: int,
        own_replica: int,
        life: int,
        journal: int,
        counter: int,
        beats: list[GroupBeat],
    ) -> bytes:
        """Return the next heartbeat."""
        assert own_replica != self.replica, "no node sends itself a heartbeat"
        self._sent += 1
        for beat in beats:
            if self._untold.get(beat.group) == 0:
                self._untold[beat.group] = self._sent
        body = encode_beats(beats)
        header = NodeHeartbeatHeader(
            cluster=cluster,
            checksum_body=xxh3_64(body),
            size=HEADER_BYTES + len(body),
            replica=own_replica,
            life=life,
            number=self._sent,
            acknowledged=self._received,
            counter=counter,
            journal=journal,
        )
        return seal(NODE_HEARTBEAT.encode(header)) + body

    def note_sent(self, now: int, *, oldest: int) -> None:
        """Remember when the newest frame was sent, and forget those from before a tick."""
        assert not self._sent_at or self._sent_at[-1][0] < self._sent, "numbers of frames rise"
        assert not self._sent_at or self._sent_at[-1][1] <= now, "ticks do not go back"
        assert oldest < now, "the newest frame is remembered"
        self._sent_at.append((self._sent, now))
        while self._sent_at[0][1] < oldest:
            self._sent_at.popleft()

    def sent_at(self, number: int) -> int | None:
        """Return the tick at which a frame was sent, if it is not long ago."""
        return next((tick for sent, tick in self._sent_at if sent == number), None)

    def forget(self, group: int) -> None:
        """Note that there is nothing to tell of a group any more."""
        self._untold.pop(group, None)
        self.asks.pop(group, None)

    def hear(self, header: NodeHeartbeatHeader, now: int) -> None:
        """Take a heartbeat: its node lives if its counter has moved."""
        assert self.heard <= now, "ticks do not go back"
        if header.counter != self._counter:
            self._counter = header.counter
            self.heard = now
        self._received = header.number
        told = [
            group
            for group, number in self._untold.items()
            if self._first < number <= header.acknowledged <= self._sent
        ]
        for group in told:
            del self._untold[group]

    def check(self, now: int, *, frames_count: int, remembered_ticks: int) -> None:
        """Assert that numbers and ticks of heartbeats rise, and that each was sent to this node."""
        assert self._first + frames_count == self._sent, "every node gets every heartbeat"
        assert self.heard <= now, "nobody was heard in the future"
        for number in self._untold.values():
            is_told = self._first < number <= self._sent
            assert number == 0 or is_told, "a group was told by a frame of this life"
        sent = list(self._sent_at)
        assert sent == sorted(sent), "frames are remembered in their order"
        if sent:
            assert sent[-1][0] == self._sent, "the newest frame is remembered"
            assert sent[-1][1] <= now, "no frame was sent in the future"
            assert sent[-1][1] - sent[0][1] <= remembered_ticks, "old frames are forgotten"
            assert len(sent) <= frames_count, "only frames of this life are remembered"
