"""The heartbeat of a node, and its entries for the groups that the node leads."""

import struct
from collections.abc import Iterable

import msgspec

from headrace.base.ids import is_group
from headrace.base.limits import OP_MAX, VIEW_MAX
from headrace.wire.codec import Data
from headrace.wire.errors import RemoteError
from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class NodeHeartbeatHeader(Header, frozen=True):
    """One node is alive, for all its groups (O1.4); its body lists the groups that changed.

    A group is listed until the other node has acknowledged a frame that listed it.
    """

    number: int = 0
    acknowledged: int = 0
    counter: int = 0
    journal: int = 0  # which store of the node the groups are on


NODE_HEARTBEAT = Layout(
    FrameKind.NODE_HEARTBEAT,
    NodeHeartbeatHeader,
    reserved_zero=True,
    number=(128, 8),
    acknowledged=(136, 8),
    counter=(144, 8),
    journal=(152, 4),
)


class GroupBeat(msgspec.Struct, frozen=True):
    """The entry of a heartbeat for one group that its node leads, or declines to lead (VS-14a).

    A primary may ask the other node to stay in the view; a promise is the answer (O6.2).
    """

    group: int
    view: int
    commit: int
    is_declined: bool
    origin: int = 0
    is_asking: bool = False
    is_promise: bool = False

    @property
    def flags(self) -> int:
        """The flags as they travel."""
        return self.is_declined | self.is_asking << 1 | self.is_promise << 2


_BEAT = struct.Struct("<QQQII")
_BEAT_FLAGS = 0b111


def encode_beats(beats: Iterable[GroupBeat]) -> bytes:
    """Write the body of a heartbeat."""
    return b"".join(
        _BEAT.pack(beat.group, beat.commit, beat.origin, beat.view, beat.flags) for beat in beats
    )


def decode_beats(body: Data) -> tuple[GroupBeat, ...]:
    """Read the body of a heartbeat.

    Raises:
        RemoteError: The body is cut, or an entry is impossible.
    """
    if len(body) % _BEAT.size:
        raise RemoteError(f"heartbeat body of {len(body)} bytes")
    for group, commit, _, view, flags in _BEAT.iter_unpack(body):
        if not is_group(group) or commit > OP_MAX or view > VIEW_MAX or flags > _BEAT_FLAGS:
            raise RemoteError(f"beat of group {group}, view {view}, commit {commit}, flags {flags}")
    return tuple(
        [
            GroupBeat(
                group,
                view,
                commit,
                is_declined=flags & 1 != 0,
                origin=origin,
                is_asking=flags & 2 != 0,
                is_promise=flags & 4 != 0,
            )
            for group, commit, origin, view, flags in _BEAT.iter_unpack(body)
        ]
    )
