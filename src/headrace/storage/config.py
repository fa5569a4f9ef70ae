"""What a store is made with, and who it belongs to."""

import struct

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import REPLICAS_MAX

FILE_ALIGNMENT = 4096
FILES_MIN = 4  # the head, one that admission may fill, and the two that are kept free

_IDENTITY = struct.Struct("<16sBBHI16s")
IDENTITY_BYTES = _IDENTITY.size


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one store; `journal` numbers the stores of one node.

    `start` numbers the starts of the node and is the same for all its stores (`storage.moments`);
    0: they are not numbered, and files of two moments are not told apart.
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
    """Whose file this is: right-looking bytes of another node, shard or life are refused (DK17)."""

    cluster: int
    replica: int
    replica_count: int
    journal: int
    incarnation: int

    def pack(self) -> bytes:
        """Write the 40 bytes that every file carries."""
        return _IDENTITY.pack(
            self.cluster.to_bytes(16, "little"),
            self.replica,
            self.replica_count,
            0,
            self.journal,
            self.incarnation.to_bytes(16, "little"),
        )

    def is_same_place(self, other: "Identity") -> bool:
        """Whether both are stores of one shard of one node, maybe of two lives."""
        return self == msgspec.structs.replace(other, incarnation=self.incarnation)


def unpack_identity(data: bytes | memoryview) -> Identity:
    """Read the 40 bytes; any bytes are some identity."""
    cluster, replica, replica_count, _, journal, incarnation = _IDENTITY.unpack_from(data)
    return Identity(
        cluster=int.from_bytes(cluster, "little"),
        replica=replica,
        replica_count=replica_count,
        journal=journal,
        incarnation=int.from_bytes(incarnation, "little"),
    )


def identity_of(config: StoreConfig, incarnation: int) -> Identity:
    """Give the identity of a store of that configuration in one of its lives."""
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
    """The journal id of a record: whose journal it is, and in which life."""

    place: int
    life: int


def journal_key(identity: Identity) -> JournalKey:
    """Give the journal id that stands in every record."""
    place = msgspec.structs.replace(identity, incarnation=0)
    return JournalKey(xxh3_64(place.pack()), xxh3_64(identity.pack()))


def file_bytes_of(config: StoreConfig) -> int:
    """Give the size of each journal file."""
    size = config.journal_bytes_max // config.journal_files
    size -= size % FILE_ALIGNMENT
    assert size * config.journal_files <= config.journal_bytes_max, "files share the bound"
    return size


def journal_name(file: int) -> str:
    """Give the name of a journal file."""
    assert file >= 0, "files are numbered from 0"
    return f"journal.{file}"


def checkpoint_name(number: int) -> str:
    """Give the name of a checkpoint file."""
    assert number > 0, "number 0 stands for no checkpoint"
    return f"checkpoint.{number}"


MARKER_NAME = "marker"
SUPERBLOCK_NAME = "superblock"
LAYOUT_NAME = "layout"
