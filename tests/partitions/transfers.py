"""A state on its way from one partition to another, as two shards carry it."""

from headrace.ports.machine import Artifact, Piece
from headrace.wire.replica.artifacts import artifact_checksum
from tests.partitions.stage import Stage


def fetch(piece: Piece, stage: Stage) -> Artifact:
    """Read a piece out of its file, as the sender does."""
    if isinstance(piece, Artifact):
        return piece
    data = stage.files.logs[piece.file][piece.position : piece.position + piece.length]
    assert artifact_checksum(piece.kind, data) == piece.checksum
    return Artifact(piece.kind, piece.frontier, bytes(data))


def exported(stage: Stage) -> list[Artifact]:
    pieces = stage.machine.export()
    stage.store()
    return [fetch(piece, stage) for piece in pieces]


def name(piece: Piece) -> tuple[int, int, int, int]:
    if isinstance(piece, Artifact):
        checksum = artifact_checksum(piece.kind, piece.data)
        return piece.kind, piece.frontier, len(piece.data), checksum
    return piece.kind, piece.frontier, piece.length, piece.checksum


def offered(stage: Stage, receiver: Stage) -> list[Piece]:
    """What the receiver installs: its own pieces where they are the same, fetched ones else."""
    ours = {name(piece): piece for piece in receiver.machine.export()}
    return [ours.get(name(piece), piece) for piece in exported(stage)]
