"""The checkpoint file: every group as it stood at one sequence of the journal (O2.8).

Flow:       checkpoint.
Invariants: the superblock names the file by number and checksum, so that a stale or torn one is
            never taken for the current one; a group that did not change keeps its encoded block.
"""

import struct
from collections.abc import Mapping
from itertools import chain

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.ports.machine import Artifact
from headrace.ports.recovered import GroupCheckpoint, ViewState
from headrace.storage.config import IDENTITY_BYTES, Identity, unpack_identity
from headrace.storage.marker import VersionError
from headrace.wire.codec import Data, Reader
from headrace.wire.errors import CorruptError, DecodeError
from headrace.wire.replica.seals import is_sealed

CHECKPOINT_VERSION = 1

_MAGIC = b"HRCHKPT1"
_HEAD = struct.Struct(f"<8sII{IDENTITY_BYTES}sQQQII")
_CEILING = struct.Struct("<QQ")
_GROUP = struct.Struct("<IIQIIQIIII")
_ARTIFACT = struct.Struct("<IIQQ")
_SUSPECT = 1
_VIEW_LOST = 2
_TAIL_LOST = 4
_CHECKSUM_BYTES = 8


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file, which stands for the journal up to the sequence `covered`."""

    identity: Identity
    number: int
    covered: int
    groups: tuple[GroupCheckpoint, ...]
    ceilings: dict[int, int]


class CheckpointEncoder:
    """Encodes checkpoints, and keeps the blocks of groups for the next one."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._seen: dict[int, GroupCheckpoint] = {}
        self._blocks: dict[int, bytes] = {}
        self.blocks_encoded = 0

    def encode_group(self, group: GroupCheckpoint) -> bytes:
        """Return the block of a group; the same value as last time has the same block."""
        number = group.state.group
        if self._seen.get(number) is not group:
            self._seen[number] = group
            self._blocks[number] = _encode_group(group)
            self.blocks_encoded += 1
        return self._blocks[number]

    def forget(self, group: int) -> None:
        """Forget the block of a removed group."""
        self._seen.pop(group, None)
        self._blocks.pop(group, None)

    def check(self, newest: Mapping[int, bytes]) -> None:
        """Assert that the blocks are those of the groups as they were given last."""
        assert self._seen.keys() == self._blocks.keys(), "a block is kept with its value"
        for number, group in self._seen.items():
            assert number == group.state.group, "a group is kept under its number"
        assert self._blocks == newest, "the next checkpoint has every group as given last"

    def encode(
        self,
        *,
        number: int,
        covered: int,
        blocks: Mapping[int, bytes],
        ceilings: Mapping[int, int],
    ) -> bytes:
        """Return the whole file; `blocks` are those of all groups, by their numbers."""
        assert number > 0, "number 0 stands for no checkpoint"
        assert covered >= 0, "sequences begin at 1"
        # The file holds all groups, but nothing here is done for each of them in Python.
        ordered = map(blocks.__getitem__, sorted(blocks))
        words = list(chain.from_iterable(sorted(ceilings.items())))
        limits = struct.pack(f"<{len(words)}Q", *words)
        length = _HEAD.size + len(limits) + sum(map(len, blocks.values())) + _CHECKSUM_BYTES
        head = _HEAD.pack(
            _MAGIC,
            CHECKPOINT_VERSION,
            _HEAD.size,
            self._identity.pack(),
            number,
            covered,
            length,
            len(blocks),
            len(ceilings),
        )
        covered_bytes = b"".join([head, limits, *ordered])
        assert len(covered_bytes) + _CHECKSUM_BYTES == length, "the file says how long it is"
        return covered_bytes + xxh3_64(covered_bytes).to_bytes(_CHECKSUM_BYTES, "little")


def checkpoint_checksum(data: Data) -> int:
    """Return the checksum by which the superblock names the file."""
    return xxh3_64(memoryview(data)[:-_CHECKSUM_BYTES])


def decode_checkpoint(data: Data) -> Checkpoint:
    """Return the contents of a checkpoint file.

    Raises:
        VersionError: It is of another version.
        CorruptError: It is cut or damaged, or is no checkpoint.
    """
    if len(data) < _HEAD.size + _CHECKSUM_BYTES:
        raise CorruptError(f"checkpoint of {len(data)} bytes")
    magic, version, head_bytes, identity, number, covered, length, groups, ceilings = (
        _HEAD.unpack_from(data)
    )
    stored = int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
    if magic != _MAGIC:
        raise CorruptError(f"no checkpoint: begins with {magic!r}")
    if stored == 0 or stored != checkpoint_checksum(data) or length != len(data):
        raise CorruptError(f"checkpoint of {len(data)} bytes has a wrong checksum")
    if version != CHECKPOINT_VERSION or head_bytes != _HEAD.size:
        raise VersionError(
            f"checkpoint of version {version}, this program reads {CHECKPOINT_VERSION}"
        )
    reader = Reader(memoryview(data)[_HEAD.size : -_CHECKSUM_BYTES])
    try:
        limits = dict([_CEILING.unpack(reader.take(_CEILING.size)) for _ in range(ceilings)])
        read = tuple([_read_group(reader) for _ in range(groups)])
    except DecodeError as error:
        raise CorruptError(f"checkpoint: {error}") from None
    if reader.remaining:
        raise CorruptError(f"checkpoint with {reader.remaining} bytes left over")
    return Checkpoint(
        identity=unpack_identity(identity),
        number=number,
        covered=covered,
        groups=read,
        ceilings=limits,
    )


def _encode_group(group: GroupCheckpoint) -> bytes:
    state = group.state
    assert len(group.commit_header) in (0, HEADER_BYTES), "it has one from the first commit on"
    assert state.log_view <= state.view, "no log is newer than the view of its group"
    parts = [group.commit_header, group.client_table]
    for artifact in group.artifacts:
        parts.append(_ARTIFACT.pack(artifact.kind, 0, artifact.frontier, len(artifact.data)))
        parts.append(artifact.data)
    head = _GROUP.pack(
        (_SUSPECT if state.is_suspect else 0)
        | (_VIEW_LOST if state.is_view_lost else 0)
        | (_TAIL_LOST if state.is_tail_lost else 0),
        0,
        state.group,
        state.view,
        state.log_view,
        state.commit,
        len(group.commit_header),
        len(group.client_table),
        len(group.artifacts),
        0,
    )
    return b"".join([head, *parts])


def _read_group(reader: Reader) -> GroupCheckpoint:
    flags, _, group, view, log_view, commit, header, table, artifacts, _ = _GROUP.unpack(
        reader.take(_GROUP.size)
    )
    commit_header = bytes(reader.take(header))
    if commit_header and (header != HEADER_BYTES or not is_sealed(commit_header)):
        raise DecodeError(f"group {group} with an unsealed header at its commit point")
    if log_view > view:
        raise DecodeError(f"group {group} of view {view} with a log of view {log_view}")
    client_table = bytes(reader.take(table))
    return GroupCheckpoint(
        ViewState(
            group,
            view,
            log_view,
            commit,
            is_suspect=bool(flags & _SUSPECT),
            is_view_lost=bool(flags & _VIEW_LOST),
            is_tail_lost=bool(flags & _TAIL_LOST),
        ),
        commit_header,
        client_table,
        tuple([_read_artifact(reader) for _ in range(artifacts)]),
    )


def _read_artifact(reader: Reader) -> Artifact:
    kind, _, frontier, length = _ARTIFACT.unpack(reader.take(_ARTIFACT.size))
    return Artifact(kind, frontier, bytes(reader.take(length)))
