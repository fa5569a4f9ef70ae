"""The ends of all lanes: made before the shards are spawned, described to each, taken up there.

```
supervisor   made = make_bus(shards=3)
             Popen(..., pass_fds=made.descriptors(k)), then made.ends(k) on the line to the child
             made.release(k)              the child alone has its ends: their closing is seen
shard k      bus = Bus(ends)           tests and benchmarks pass them as text (`read_ends`)
```
"""

import os
import socket
import stat
from collections.abc import Iterator
from itertools import combinations

import msgspec

from headrace.base.ids import GATEWAY
from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES, MIB

CAPACITY = 1024
CAPACITY_MAX = 1 << 20
# The system takes less if net.core.wmem_max says so. A frame of 1 MiB that fits crosses in one
# piece; otherwise both processes take turns with parts of it.
SEND_BUFFER_BYTES = 4 * MIB

_NONE = -1


class LaneEnd(msgspec.Struct, frozen=True):
    """The descriptors of one member's ends towards another."""

    own: int
    peer: int
    main: int
    reply: int
    handover: int = _NONE  # of sockets: from shard 0, or to it


class BusEnds(msgspec.Struct, frozen=True):
    """What one member inherits; lane i leads to member i, and none to itself (SH-15).

    Raises:
        ValueError: Lanes are missing or in the wrong order, or a bound is outside its range.
    """

    member: int
    members: tuple[int, ...]
    lanes: tuple[LaneEnd | None, ...]
    inbox_capacity: int = CAPACITY
    reply_inbox_capacity: int = CAPACITY
    frame_bytes_max: int = FRAME_BYTES_MAX + HEADER_BYTES

    def __post_init__(self) -> None:
        check_capacity("inbox_capacity", self.inbox_capacity)
        check_capacity("reply_inbox_capacity", self.reply_inbox_capacity)
        if self.member not in self.members or len(self.lanes) != len(self.members):
            raise ValueError(
                f"member {self.member} of {len(self.members)} has {len(self.lanes)} lanes"
            )
        for index, (member, lane) in enumerate(zip(self.members, self.lanes, strict=True)):
            if lane is None and member == self.member:
                continue
            if lane is None or (lane.own, lane.peer) != (self.member, member):
                found = "nowhere" if lane is None else f"from {lane.own} to {lane.peer}"
                raise ValueError(
                    f"lane {index} of member {self.member} must lead to member {member}"
                    f" and leads {found}"
                )
        taken = list(self.descriptors())
        if len(dict.fromkeys(taken)) != len(taken):
            raise ValueError(f"member {self.member} has one descriptor for two lanes: {taken}")

    def descriptors(self) -> Iterator[int]:
        """Yield all descriptors, for `pass_fds`."""
        for lane in self.lanes:
            if lane is not None:
                yield lane.main
                yield lane.reply
                if lane.handover != _NONE:
                    yield lane.handover

    def to_text(self) -> str:
        """Return this as one line of text, for the environment of the child."""
        return msgspec.json.encode(self).decode()


def read_ends(text: str) -> BusEnds:
    """Return the ends that a text describes.

    Raises:
        ValueError: It does not describe any.
    """
    try:
        return msgspec.json.decode(text, type=BusEnds)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no description of a bus: {error}") from None


def check_capacity(name: str, frames: int) -> None:
    """Refuse a bound on the frames of a lane that is zero or too large (SH-11).

    Raises:
        ValueError: It is.
    """
    if not 1 <= frames <= CAPACITY_MAX:
        raise ValueError(f"{name} is {frames}, allowed 1 to {CAPACITY_MAX}")


class MadeBus:
    """All ends of a bus, in the process that made them."""

    def __init__(self, ends: dict[int, BusEnds]) -> None:
        self._ends = ends
        self._held = {member: list(each.descriptors()) for member, each in ends.items()}

    def ends(self, member: int) -> BusEnds:
        """Return what a member inherits."""
        return self._ends[member]

    def descriptors(self, member: int) -> tuple[int, ...]:
        """Return the descriptors that a member inherits, for `pass_fds`."""
        return tuple(self._held[member])

    def release(self, member: int) -> None:
        """Close this process's copies of a member's ends; may be called twice.

        As long as they are open, nobody sees that the member is gone.
        """
        for descriptor in self._held[member]:
            os.close(descriptor)
        self._held[member] = []

    def keep(self, member: int) -> BusEnds:
        """Return a member's ends for use in this process; `close` leaves them open."""
        self._held[member] = []
        return self._ends[member]

    def close(self) -> None:
        """Close all that was neither released nor kept."""
        for member in self._held:
            self.release(member)


def count_descriptors(shards: int) -> int:
    """Return how many descriptors `make_bus` opens for so many shards."""
    pairs = shards * (shards - 1) // 2
    return 4 * pairs + 2 * (shards - 1)  # both ends of two lanes; from shard 0 also of sockets


def make_bus(
    shards: int,
    *,
    has_gateway: bool = False,
    inbox_capacity: int = CAPACITY,
    reply_inbox_capacity: int = CAPACITY,
    frame_bytes_max: int = FRAME_BYTES_MAX + HEADER_BYTES,
) -> MadeBus:
    """Make the socket pairs of all members; none survives a failure.

    Raises:
        ValueError: There is only one member, or a bound is outside its range.
        OSError: The process may not open so many descriptors.
    """
    members = (*range(shards), GATEWAY) if has_gateway else tuple(range(shards))
    if len(members) < 2 or shards > GATEWAY:
        raise ValueError(f"{shards} shards have no bus")
    check_capacity("inbox_capacity", inbox_capacity)
    check_capacity("reply_inbox_capacity", reply_inbox_capacity)
    made: list[int] = []
    lanes: dict[tuple[int, int], LaneEnd] = {}
    try:
        for low, high in combinations(members, 2):
            first, second = _make_pair(low, high, made)
            lanes[low, high] = first
            lanes[high, low] = second
    except BaseException:
        for descriptor in made:
            os.close(descriptor)
        raise
    return MadeBus(
        {
            member: BusEnds(
                member,
                members,
                tuple(lanes.get((member, peer)) for peer in members),
                inbox_capacity,
                reply_inbox_capacity,
                frame_bytes_max,
            )
            for member in members
        }
    )


def _make_pair(low: int, high: int, made: list[int]) -> tuple[LaneEnd, LaneEnd]:
    main = _socket_pair(socket.SOCK_STREAM, made)
    reply = _socket_pair(socket.SOCK_STREAM, made)
    handover = (_NONE, _NONE)
    if low == 0 and high != GATEWAY:
        handover = _socket_pair(socket.SOCK_SEQPACKET, made)
    return (
        LaneEnd(low, high, main[0], reply[0], handover[0]),
        LaneEnd(high, low, main[1], reply[1], handover[1]),
    )


def _socket_pair(kind: socket.SocketKind, made: list[int]) -> tuple[int, int]:
    pair = socket.socketpair(socket.AF_UNIX, kind)
    for end in pair:
        end.settimeout(0)
        if kind == socket.SOCK_STREAM:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    descriptors = pair[0].detach(), pair[1].detach()
    made += descriptors
    return descriptors


def take_up(ends: BusEnds) -> dict[int, socket.socket]:
    """Return the sockets of all ends, by descriptor; children of this process inherit none.

    Raises:
        ValueError: One is not open, or another kind of socket; those before it are closed.
    """
    taken: dict[int, socket.socket] = {}
    try:
        for lane in ends.lanes:
            if lane is not None:
                for descriptor in (lane.main, lane.reply):
                    taken[descriptor] = _take_up(descriptor, socket.SOCK_STREAM)
                if lane.handover != _NONE:
                    taken[lane.handover] = _take_up(lane.handover, socket.SOCK_SEQPACKET)
    except ValueError:
        for each in taken.values():
            each.close()
        raise
    return taken


def _take_up(descriptor: int, kind: socket.SocketKind) -> socket.socket:
    try:
        is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError as error:
        raise ValueError(f"descriptor {descriptor} of the bus: {error.strerror}") from None
    if not is_socket:
        raise ValueError(f"descriptor {descriptor} of the bus is no socket")
    taken = socket.socket(fileno=descriptor)
    if taken.family != socket.AF_UNIX or taken.type != kind:
        taken.detach()
        raise ValueError(f"descriptor {descriptor} of the bus is no {kind.name} pair")
    taken.settimeout(0)
    taken.set_inheritable(False)
    return taken
