"""The two ends of a state transfer: the offer of the primary, and the pull of a backup."""

from headrace.base.ids import View
from headrace.ports.machine import Artifact, Piece
from headrace.wire.errors import CorruptError
from headrace.wire.replica import artifacts as wire

# Artifacts that consensus adds to the machine's own.
CLIENT_TABLE = 1
COMMIT_HEADER = 255

OFFERS_MAX = 4
READS_MAX = 16  # of pieces that lie in files, at a time


def describe(piece: Piece) -> wire.Artifact:
    """Return the entry of an artifact in the manifest."""
    if isinstance(piece, Artifact):
        checksum = wire.artifact_checksum(piece.kind, piece.data)
        return wire.Artifact(piece.kind, piece.frontier, len(piece.data), checksum)
    return wire.Artifact(piece.kind, piece.frontier, piece.length, piece.checksum)


class Offer:
    """A state that others may pull, as of one op."""

    __slots__ = ("artifacts", "commit", "manifest")

    def __init__(self, commit: int, artifacts: tuple[Piece, ...]) -> None:
        assert commit > 0, "an empty state is not offered"
        self.commit = commit
        self.artifacts = artifacts
        self.manifest = wire.encode_manifest(tuple(describe(each) for each in artifacts))


class Pull:
    """A running transfer: the wanted artifacts, and the data received so far."""

    __slots__ = ("commit", "data", "have", "nonce", "source", "view", "wanted")

    def __init__(self, source: int, nonce: int, view: View) -> None:
        self.source = source
        self.nonce = nonce
        self.view = view
        self.commit = 0
        self.wanted: tuple[wire.Artifact, ...] = ()
        self.have: dict[int, Piece] = {}  # artifacts that need not be fetched
        self.data: list[bytearray] = []

    def accept(self, commit: int, wanted: tuple[wire.Artifact, ...]) -> None:
        """Accept a manifest."""
        assert not self.wanted, "a pull has one manifest"
        assert commit > self.commit, "a manifest names its op"
        self.commit = commit
        self.wanted = wanted
        self.data = [bytearray() for _ in wanted]

    def check(self) -> None:
        """Assert what holds between two steps."""
        assert len(self.data) == len(self.wanted), "every artifact of the manifest has its place"
        assert all(0 <= index < len(self.wanted) for index in self.have), "only wanted is reused"
        for index, (line, data) in enumerate(zip(self.wanted, self.data, strict=True)):
            assert len(data) <= line.length, "no more than an artifact was taken"
            assert not data or index not in self.have, "what is here is not fetched"
        for index, piece in self.have.items():
            assert describe(piece) == self.wanted[index], "what is reused is what is wanted"
        assert (self.commit > 0) == bool(self.wanted), "a manifest names its op"
        assert not self.wanted or self.missing() is not None, "a whole state is installed at once"

    def missing(self) -> tuple[int, int, int] | None:
        """Return the next range to request: the artifact, the offset, the missing bytes."""
        for index, line in enumerate(self.wanted):
            have = len(self.data[index])
            assert have <= line.length, "no more than an artifact was taken"
            if index not in self.have and have < line.length:
                return index, have, line.length - have
        return None

    def artifacts(self) -> tuple[Piece, ...] | None:
        """Return all artifacts, or None if a checksum does not match."""
        pieces: list[Piece] = []
        for index, (line, data) in enumerate(zip(self.wanted, self.data, strict=True)):
            if index in self.have:
                pieces.append(self.have[index])
                continue
            try:
                checksum = wire.artifact_checksum(line.kind, data)
            except CorruptError:
                return None
            if checksum != line.checksum:
                return None
            pieces.append(Artifact(line.kind, line.frontier, bytes(data)))
        assert len(pieces) == len(self.wanted), "every artifact is here"
        return tuple(pieces)
