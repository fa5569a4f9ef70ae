"""What happened on whole nodes: a hash of all of it, and the last of it to read."""

import msgspec

from headrace.ports.credentials import HashPassword, MintToken, TokenMinted, VerifyPassword
from headrace.ports.disk import FromStore, OnStore
from headrace.ports.network import SendFrame, SendToConnection, Ticked
from headrace.ports.segments import SegmentRead, WriteIndex, WriteSegment
from headrace.sim import trace
from headrace.sim.trace import LAST, Trace

_SECRETS = (VerifyPassword, HashPassword, MintToken, TokenMinted)


class NodeTrace(Trace):
    """Knows what a whole shard takes and gives."""

    def add(self, now: int, node: int, happened: msgspec.Struct | str) -> None:
        """Take note of one event, one effect, or a word of the world's own."""
        if type(happened) in _SECRETS:  # A secret is not written down.
            happened = f"{type(happened).__name__} {happened.token}"  # type: ignore[union-attr]
        super().add(now, node, happened)

    def last(self, count: int = LAST) -> list[str]:
        """Give the last lines, ticks left out."""
        told = [entry for entry in self._last if type(entry[2]) is not Ticked]
        return [_describe(*entry) for entry in told[-count:]]


def _describe(now: int, node: int, happened: object) -> str:
    match happened:
        case OnStore() | FromStore():
            inner = happened.effect if isinstance(happened, OnStore) else happened.event
            return f"{trace.describe(now, node, inner)} (store {happened.store})"
        case SendToConnection():
            frame = b"".join(happened.parts)
            told = trace.describe(now, node, _frame_holder(frame))
            return told.replace("-> 0 ", f"=> connection {happened.connection} ")
        case WriteSegment():
            size = sum(len(part) for part in happened.parts)
            told = f"write {_file(happened.file)} at {happened.position} {size} bytes"
        case WriteIndex():
            told = f"index of {_file(happened.file)}"
        case SegmentRead():
            size = -1 if happened.data is None else len(happened.data)
            told = f"read {happened.token}: {size} bytes"
        case _:
            return trace.describe(now, node, happened)
    return f"{now / 1e6:10.6f} {node} {told}"


def _frame_holder(frame: bytes) -> msgspec.Struct:
    return SendFrame(0, frame)


def _file(file: object) -> str:
    return repr(file)[12:-1]
