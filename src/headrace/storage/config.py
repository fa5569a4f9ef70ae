"""The settings of a store, and its identity."""

import struct

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import REPLICAS_MAX

FILE_ALIGNMENT = 4096
JOURNAL_PREFIX = "journal."
FILES_MIN = 4  # the head, one that admission may fill, and the two that are kept free

_IDENTITY = struct.Struct("<16sBBHI16s")
IDENTITY_BYTES = _IDENTITY.size


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one store; `journal` numbers the stores of one node.

    `start` numbers the starts of the node and is the same for all its stores (`storage.moments`);
    0: starts are not numbered, and files copied at two moments are not distinguished.
    """

    cluster: int
    replica: int
    replica_count: int
    journal_bytes_max: int
    journal_files: int
    record_bytes_max: int
    boot_identity: int
    journal: int = 0
    start: int = 0


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a file: files of another node, shard or incarnation are refused (DK17)."""

    cluster: int
    replica: int
    replica_count: int
    journal: int
    incarnation: int

    def pack(self) -> bytes:
        """Return the 40 bytes that every file carries."""
        return _IDENTITY.pack(
            self.cluster.to_bytes(16, "little"),
            self.replica,
            self.replica_count,
            0,
            self.journal,
            self.incarnation.to_bytes(16, "little"),
        )

    def is_same_place(self, other: "Identity") -> bool:
        """Whether both are stores of one shard of one node, in any incarnation."""
        return self == msgspec.structs.replace(other, incarnation=self.incarnation)


def unpack_identity(data: bytes | memoryview) -> Identity:
    """Return the identity in 40 bytes; any bytes are valid."""
    cluster, replica, replica_count, _, journal, incarnation = _IDENTITY.unpack_from(data)
    return Identity(
        cluster=int.from_bytes(cluster, "little"),
        replica=replica,
        replica_count=replica_count,
        journal=journal,
        incarnation=int.from_bytes(incarnation, "little"),
    )


def identity_of(config: StoreConfig, incarnation: int) -> Identity:
    """Return the identity of a store with this configuration and incarnation."""
    assert 1 <= config.replica_count <= REPLICAS_MAX, "the configuration was checked"
    assert 0 <= config.replica < config.replica_count, "replicas are numbered from 0"
    assert 0 <= incarnation < 1 << 128, "it has 16 bytes in every file"
    return Identity(
        cluster=config.cluster,
        replica=config.replica,
        replica_count=config.replica_count,
        journal=config.journal,
        incarnation=incarnation,
    )


class JournalKey(msgspec.Struct, frozen=True):
    """The journal id of a record: store and incarnation."""

    place: int
    life: int


def journal_key(identity: Identity) -> JournalKey:
    """Return the journal id that every record carries."""
    place = msgspec.structs.replace(identity, incarnation=0)
    return JournalKey(xxh3_64(place.pack()), xxh3_64(identity.pack()))


def file_bytes_of(config: StoreConfig) -> int:
    """Return the size of each journal file."""
    size = config.journal_bytes_max // config.journal_files
    size -= size % FILE_ALIGNMENT
    assert size * config.journal_files <= config.journal_bytes_max, "files share the bound"
    return size


def journal_name(file: int) -> str:
    """Return the name of a journal file."""
    assert file >= 0, "files are numbered from 0"
    return f"{JOURNAL_PREFIX}{file}"


def checkpoint_name(number: int) -> str:
    """Return the name of a checkpoint file."""
    assert number > 0, "number 0 stands for no checkpoint"
    return f"checkpoint.{number}"


MARKER_NAME = "marker"
SUPERBLOCK_NAME = "superblock"
LAYOUT_NAME = "layout"
