"""The protocol version, and its check, which precedes that of the credentials of a login."""

import msgspec

_PART_MAX = (1 << 10) - 1


class Version(msgspec.Struct, frozen=True, order=True):
    """Three numbers of ten bits each."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def pack_version(version: Version) -> int:
    """Return the number that travels."""
    for part in (version.major, version.minor, version.patch):
        if not 0 <= part <= _PART_MAX:
            raise ValueError(f"version part {part} is not within 0 to {_PART_MAX}")
    return version.major << 20 | version.minor << 10 | version.patch


def unpack_version(packed: int) -> Version:
    """Return the version of a number from the wire; the two bits above are ignored."""
    return Version(packed >> 20 & _PART_MAX, packed >> 10 & _PART_MAX, packed & _PART_MAX)


PROTOCOL = Version(0, 11, 0)
PROTOCOL_PACKED = pack_version(PROTOCOL)
PROTOCOL_PACKED_MIN = PROTOCOL_PACKED


def is_compatible(packed: int) -> bool:
    """Whether we serve a client of that version: this one alone, since 0.11.1 logs in otherwise."""
    return PROTOCOL_PACKED_MIN <= packed <= PROTOCOL_PACKED
