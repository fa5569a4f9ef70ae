"""The two ends of a state transfer, as values: what is offered, and how much of it is here."""

from headrace.base.checksum import xxh3_64
from headrace.ports.machine import Artifact
from headrace.wire import transfer as wire

# Artifacts that consensus adds to the machine's own.
CLIENT_TABLE = 1
COMMIT_HEADER = 255


def describe(artifact: Artifact) -> wire.Artifact:
    """Give an artifact's line in the manifest."""
    return wire.Artifact(
        artifact.kind, artifact.frontier, len(artifact.data), xxh3_64(artifact.data)
    )


class Offer:
    """A state that others may pull, frozen at one op."""

    __slots__ = ("artifacts", "commit", "manifest")

    def __init__(self, commit: int, artifacts: tuple[Artifact, ...]) -> None:
        self.commit = commit
        self.artifacts = artifacts
        self.manifest = wire.encode_manifest(tuple(describe(each) for each in artifacts))


class Pull:
    """A state on its way here: which artifacts are wanted, and what has come."""

    __slots__ = ("commit", "data", "nonce", "source", "view", "wanted")

    def __init__(self, source: int, nonce: int, view: int) -> None:
        self.source = source
        self.nonce = nonce
        self.view = view
        self.commit = 0
        self.wanted: tuple[wire.Artifact, ...] = ()
        self.data: list[bytearray] = []

    def accept(self, commit: int, wanted: tuple[wire.Artifact, ...]) -> None:
        """Take a manifest; nothing has come yet."""
        self.commit = commit
        self.wanted = wanted
        self.data = [bytearray() for _ in wanted]

    def missing(self) -> tuple[int, int, int] | None:
        """Give the next piece to ask for: which artifact, from where, how many bytes are left."""
        for index, line in enumerate(self.wanted):
            have = len(self.data[index])
            if have < line.length:
                return index, have, line.length - have
        return None

    def artifacts(self) -> tuple[Artifact, ...] | None:
        """Give what has come, or nothing if a checksum does not match."""
        pieces = []
        for line, data in zip(self.wanted, self.data, strict=True):
            if xxh3_64(data) != line.checksum:
                return None
            pieces.append(Artifact(line.kind, line.frontier, bytes(data)))
        return tuple(pieces)
