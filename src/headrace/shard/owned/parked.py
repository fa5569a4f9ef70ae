"""Frames that came before their partition, in their order and within bounds (SH-26).

| | requests of clients | prepares of other replicas |
|---|---|---|
| of one partition | 128, and 4 MiB | refused once 4 MiB are spent |
| of the shard | 16 MiB | refused once 16 MiB are spent |
| passes of the reconciler | 3 | any number |

So a single prepare of any size finds a place where nothing else waits. Sizes are those of buffers,
in steps of 4 KiB.

Flow:       route.
Invariants: a frame keeps the stamp that it came with, and frames of one kind and partition their
            order, until they leave (O5.4).
"""

from collections.abc import Callable, Collection
from typing import TypeAlias

import msgspec

from headrace.base.limits import KIB, MIB
from headrace.ports.network import Buffer
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.kinds import ReplicaHeader
from headrace.wire.requests import RequestHeader

REQUESTS_MAX = 128  # of one partition
PARTITION_BYTES_MAX = 4 * MIB
SHARD_BYTES_MAX = 16 * MIB
BUFFER_BYTES = 4 * KIB
PASSES_MAX = 3

assert REQUESTS_MAX * BUFFER_BYTES <= PARTITION_BYTES_MAX <= SHARD_BYTES_MAX
assert PARTITION_BYTES_MAX % BUFFER_BYTES == 0


class ParkedRequest(msgspec.Struct, frozen=True):
    """A request of a client, under the ticket by which it waits for its answer."""

    group: int
    stamp: int  # the incarnation of the partition that metadata knew when it came
    ticket: int
    header: RequestHeader
    frame: Buffer


class ParkedPrepare(msgspec.Struct, frozen=True):
    """An op that another replica has sent."""

    group: int
    stamp: int  # the incarnation that the op itself names (RC-20)
    sender: int
    kind: FrameKind
    header: ReplicaHeader
    frame: bytes


ParkedFrame: TypeAlias = ParkedRequest | ParkedPrepare


class _Place:
    """What waits for one partition."""

    __slots__ = ("passes", "prepares", "requests", "size_bytes")

    def __init__(self) -> None:
        self.prepares: list[ParkedPrepare] = []
        self.requests: list[ParkedRequest] = []
        self.passes: dict[int, int] = {}  # how many each request has waited for, by ticket
        self.size_bytes = 0

    @property
    def frames(self) -> list[ParkedFrame]:
        """All frames."""
        return [*self.prepares, *self.requests]

    @property
    def largest_bytes(self) -> int:
        """The size of the largest frame."""
        return max(buffer_bytes(len(each.frame)) for each in self.frames)


class Parked:
    """All frames of a shard that wait; `count` is how many."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self.size_bytes = 0
        self.count = 0

    def __contains__(self, group: int) -> bool:
        return group in self._places

    def groups(self) -> list[int]:
        """Return the partitions that are waited for."""
        return list(self._places)

    def has_room(self, group: int, frame_bytes: int) -> bool:
        """Whether a request of so many bytes finds a place."""
        place = self._places.get(group)
        size_bytes = buffer_bytes(frame_bytes)
        if place is not None:
            is_many = len(place.requests) >= REQUESTS_MAX
            if is_many or place.size_bytes + size_bytes > PARTITION_BYTES_MAX:
                return False
        assert len(self._places) <= self.count, "a partition is waited for by a frame"
        return size_bytes <= PARTITION_BYTES_MAX and self.size_bytes + size_bytes <= SHARD_BYTES_MAX

    def put_request(self, request: ParkedRequest) -> None:
        """Have a request wait, for which there is room."""
        assert self.has_room(request.group, len(request.frame)), "who waits has a place"
        place = self._enter(request)
        newest = place.requests[-1].ticket if place.requests else 0
        assert newest < request.ticket, "requests wait in the order in which they came"
        place.requests.append(request)
        place.passes[request.ticket] = 0

    def put_prepare(self, prepare: ParkedPrepare) -> bool:
        """Have a prepare wait; return whether it found a place, or waits already."""
        place = self._places.get(prepare.group)
        if place is not None:
            if any(each.frame == prepare.frame for each in place.prepares):
                return True  # Its primary sends it again until it is acknowledged.
            if place.size_bytes >= PARTITION_BYTES_MAX:
                return False
        if self.size_bytes >= SHARD_BYTES_MAX:
            return False
        self._enter(prepare).prepares.append(prepare)
        assert self.count >= len(self._places), "a partition is waited for by a frame"
        return True

    def _enter(self, frame: ParkedFrame) -> _Place:
        place = self._places.setdefault(frame.group, _Place())
        size_bytes = buffer_bytes(len(frame.frame))
        place.size_bytes += size_bytes
        self.size_bytes += size_bytes
        self.count += 1
        assert place.size_bytes <= self.size_bytes, "the shard counts what its partitions count"
        return place

    def take(self, group: int, is_taken: Callable[[ParkedFrame], bool]) -> list[ParkedFrame]:
        """Return the frames of a partition that are to go: prepares, then requests, in order."""
        place = self._places.get(group)
        if place is None:
            return []
        prepares = [(each, is_taken(each)) for each in place.prepares]
        requests = [(each, is_taken(each)) for each in place.requests]
        place.prepares = [each for each, is_gone in prepares if not is_gone]
        place.requests = [each for each, is_gone in requests if not is_gone]
        place.passes = {each.ticket: place.passes[each.ticket] for each in place.requests}
        taken: list[ParkedFrame] = [each for each, is_gone in prepares if is_gone]
        taken += [each for each, is_gone in requests if is_gone]
        self._leave(group, place, taken)
        return taken

    def _leave(self, group: int, place: _Place, taken: list[ParkedFrame]) -> None:
        size_bytes = sum(buffer_bytes(len(each.frame)) for each in taken)
        place.size_bytes -= size_bytes
        self.size_bytes -= size_bytes
        self.count -= len(taken)
        assert 0 <= place.size_bytes <= self.size_bytes, "who has left takes no room"
        if not place.prepares and not place.requests:
            assert place.size_bytes == 0, "who has left takes no room"
            del self._places[group]

    def age(self, group: int) -> list[ParkedFrame]:
        """Count a pass for the requests of a partition; return those that have waited too long."""
        if group not in self._places:
            return []
        passes = self._places[group].passes
        for ticket in passes:
            passes[ticket] += 1
            assert passes[ticket] <= PASSES_MAX, "who has waited too long is answered"
        return self.take(
            group,
            lambda each: isinstance(each, ParkedRequest) and passes[each.ticket] == PASSES_MAX,
        )

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        return [each.ticket for place in self._places.values() for each in place.requests]

    def check(self, here: Collection[tuple[int, int]]) -> None:
        """Assert that the bounds hold, and that nothing waits for one of those that are here."""
        places = self._places.values()
        assert sum(place.size_bytes for place in places) == self.size_bytes, "all bytes count"
        counts = [len(place.prepares) + len(place.requests) for place in places]
        assert sum(counts) == self.count, "all frames count"
        assert all(counts), "a partition that nothing waits for is forgotten"
        largest = max((each.largest_bytes for each in places), default=0)
        assert self.size_bytes - largest < SHARD_BYTES_MAX, "only the last goes beyond"
        for group, place in self._places.items():
            self._check_place(group, place)
            for each in place.frames:
                assert (group, each.stamp) not in here, "what can go on has gone on"

    def _check_place(self, group: int, place: _Place) -> None:
        frames = place.frames
        assert all(each.group == group for each in frames), "a frame waits for its partition"
        sizes = [buffer_bytes(len(each.frame)) for each in frames]
        assert sum(sizes) == place.size_bytes, "all bytes count"
        tickets = [each.ticket for each in place.requests]
        assert tickets == sorted(dict.fromkeys(tickets)), "requests wait in their order"
        assert tickets == list(place.passes), "each request has its age"
        assert all(passes < PASSES_MAX for passes in place.passes.values()), "nobody waits longer"
        assert len(tickets) <= REQUESTS_MAX, "requests are bounded"
        assert place.size_bytes - place.largest_bytes < PARTITION_BYTES_MAX, (
            "only the last goes beyond"
        )


def buffer_bytes(size_bytes: int) -> int:
    """Return the size of the buffer that a frame takes."""
    rounded = -(-size_bytes // BUFFER_BYTES) * BUFFER_BYTES
    assert size_bytes <= rounded < size_bytes + BUFFER_BYTES, "a frame is in its buffer"
    return rounded
