"""The file that marks a folder as formatted, with the identity of its store.

Without it an empty folder of a known node would look like a new one, and a replica that lost its
votes would vote again.
"""

import struct

from headrace.base.checksum import xxh3_64
from headrace.storage.config import IDENTITY_BYTES, Identity, unpack_identity
from headrace.wire.codec import Data
from headrace.wire.errors import CorruptError

MARKER_VERSION = 1

_MAGIC = b"HRMARKR1"
_HEAD = struct.Struct("<8sII")
MARKER_BYTES = 64
_CHECKSUM_AT = MARKER_BYTES - 8

assert _HEAD.size + IDENTITY_BYTES == _CHECKSUM_AT


class VersionError(CorruptError):
    """A file of a version that this program does not read (DK20)."""


def encode_marker(identity: Identity) -> bytes:
    """Return the whole file."""
    covered = _HEAD.pack(_MAGIC, MARKER_VERSION, MARKER_BYTES) + identity.pack()
    assert len(covered) == _CHECKSUM_AT, "the checksum ends the file"
    return covered + xxh3_64(covered).to_bytes(8, "little")


def decode_marker(data: Data) -> Identity:
    """Return the identity in the file.

    Raises:
        VersionError: It is of another version.
        CorruptError: It is cut or damaged, or is no marker.
    """
    if len(data) < MARKER_BYTES:
        raise CorruptError(f"marker of {len(data)} bytes, {MARKER_BYTES} wanted")
    magic, version, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptError(f"no marker: begins with {magic!r}")
    # In every version the last 8 bytes are the checksum: damage is not taken for a version.
    covered = bytes(data[:-8])
    stored = int.from_bytes(data[-8:], "little")
    if stored == 0 or stored != xxh3_64(covered):
        raise CorruptError(f"marker checksum {stored:016x}, {xxh3_64(covered):016x} wanted")
    if version != MARKER_VERSION or length != MARKER_BYTES:
        raise VersionError(f"marker of version {version}, this program reads {MARKER_VERSION}")
    return unpack_identity(covered[_HEAD.size :])
