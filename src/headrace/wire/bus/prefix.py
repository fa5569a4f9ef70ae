"""The eight bytes in front of a frame on a lane: its size, whom it is for, and who sent it."""

from struct import Struct

from headrace.base.ids import GATEWAY
from headrace.base.limits import HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.errors import RemoteError

_PREFIX = Struct("<IHH")
PREFIX_BYTES = _PREFIX.size


def encode_prefix(frame_bytes: int, *, target: int, sender: int) -> bytes:
    """Return the prefix of a frame of so many bytes, header included."""
    assert frame_bytes >= HEADER_BYTES
    assert 0 <= target <= GATEWAY
    assert 0 <= sender != target
    return _PREFIX.pack(frame_bytes, target, sender)


def decode_prefix(
    data: Data, position: int, *, sender: int, frame_bytes_max: int
) -> tuple[int, int]:
    """Return the size of the frame behind a prefix, and its target.

    Raises:
        RemoteError: The bytes are cut, the size is outside the bounds, or another member is named
            as the sender than the one at the other end of the lane.
    """
    if len(data) - position < PREFIX_BYTES:
        raise RemoteError(f"prefix of {len(data) - position} bytes, not {PREFIX_BYTES}")
    size, target, named = _PREFIX.unpack_from(data, position)
    if not HEADER_BYTES <= size <= frame_bytes_max:
        raise RemoteError(f"frame of {size} bytes, allowed {HEADER_BYTES} to {frame_bytes_max}")
    if named != sender:
        raise RemoteError(f"frame of member {named} on the lane of member {sender}")
    return size, target
