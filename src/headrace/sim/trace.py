"""What happened: a hash of all of it, and the last of it to read."""

from collections import deque
from collections.abc import Callable

import msgspec
import xxhash

from headrace.ports.disk import ReplaceFile, WriteBlock, WriteJournal
from headrace.ports.network import FramesArrived, RequestsArrived, SendFrame, SendReply, Ticked
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind

LAST = 300

_KINDS = {int(kind): kind.name for kind in FrameKind}
_ENCODER = msgspec.msgpack.Encoder()


class Trace:
    """Rolling XXH3 over every delivered event and every effect; equal runs give equal hashes."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self._hash = xxhash.xxh3_64()
        self._last: deque[tuple[int, int, object]] = deque(maxlen=LAST)
        self._tell = tell

    def add(self, now: int, node: int, happened: msgspec.Struct | str) -> None:
        """Take note of one event, one effect, or a word of the world's own."""
        self.count += 1
        if type(happened) is SendReply:
            data = happened.frame
        elif type(happened) is str:
            data = happened.encode()
        else:
            data = _ENCODER.encode(happened)
        self._hash.update(b"%d %d %d " % (now, node, len(data)) + data)
        self._last.append((now, node, happened))
        if self._tell is not None and type(happened) is not Ticked:
            self._tell(describe(now, node, happened))

    @property
    def digest(self) -> str:
        """The hash of everything so far."""
        return f"{self._hash.intdigest():016x}"

    def last(self, count: int = LAST) -> list[str]:
        """Give the last lines, ticks left out."""
        told = [entry for entry in self._last if type(entry[2]) is not Ticked]
        return [describe(*entry) for entry in told[-count:]]


def describe(now: int, node: int, happened: object) -> str:
    """Give one line: virtual seconds, node, what."""
    return f"{now / 1e6:10.6f} {node} {_short(happened)}"


def _short(happened: object) -> str:
    match happened:
        case str():
            told = f"** {happened}"
        case SendFrame():
            told = f"-> {happened.replica} {_frame(happened.frame)}"
        case SendReply():
            told = f"=> client {happened.client:x} {_frame(happened.frame)}"
        case FramesArrived():
            told = "<- " + "; ".join(f"{who} {_frame(frame)}" for who, frame in happened.frames)
        case RequestsArrived():
            told = "<= " + "; ".join(_frame(bytes(frame)) for _, frame in happened.frames)
        case WriteJournal():
            told = (
                f"journal {happened.sequence} file {happened.file} at {happened.position}"
                f" {len(happened.data)} bytes{' sync' if happened.sync else ''}"
            )
        case WriteBlock() | ReplaceFile():
            told = f"{type(happened).__name__} {happened.name} {len(happened.data)} bytes"
        case _:
            told = repr(happened)[:200]
    return told


def _number(frame: bytes, at: int, width: int = 8) -> int:
    return int.from_bytes(frame[at : at + width], "little")


# Where the numbers lie that say most about a frame: name, offset, bytes.
_TOLD = {
    FrameKind.REQUEST: (("client", 128, 16), ("request", 168, 8), ("operation", 176, 1)),
    FrameKind.PREPARE: (("op", 176, 8), ("commit", 184, 8), ("group", 216, 8)),
    FrameKind.REPAIR_PREPARE: (("op", 176, 8), ("group", 216, 8)),
    FrameKind.PREPARE_OK: (("op", 160, 8), ("group", 200, 8)),
    FrameKind.REPLY: (("op", 176, 8), ("request", 200, 8), ("status", 216, 4)),
    FrameKind.COMMIT: (("commit", 152, 8), ("group", 168, 8)),
    FrameKind.START_VIEW_CHANGE: (("group", 128, 8),),
    FrameKind.DO_VIEW_CHANGE: (
        ("op", 128, 8),
        ("commit", 136, 8),
        ("log_view", 152, 4),
        ("nack", 224, 16),
        ("present", 240, 16),
        ("group", 144, 8),
    ),
    FrameKind.START_VIEW: (("op", 128, 8), ("commit", 136, 8), ("group", 144, 8)),
    FrameKind.EVICTION: (("client", 128, 16), ("reason", 255, 1)),
    FrameKind.REQUEST_START_VIEW: (("group", 128, 8),),
    FrameKind.REQUEST_PREPARES: (("from", 144, 8), ("to", 152, 8), ("group", 160, 8)),
    FrameKind.REPAIR_DONE: (("op", 144, 8), ("group", 152, 8)),
    FrameKind.RANGE_EVICTED: (("op", 144, 8), ("group", 152, 8)),
    FrameKind.STATE_TRANSFER_TARGET: (("commit_op", 144, 8), ("group", 152, 8)),
    FrameKind.REQUEST_STATE_CHUNK: (("offset", 144, 8), ("artifact", 164, 4), ("group", 152, 8)),
    FrameKind.NODE_HEARTBEAT: (("number", 128, 8), ("acknowledged", 136, 8)),
    FrameKind.RECOVERY_REPORT: (("group", 128, 8), ("commit", 136, 8)),
    FrameKind.STATE_CHUNK: (("offset", 144, 8), ("artifact", 160, 4), ("group", 152, 8)),
}


def _frame(frame: bytes) -> str:
    if len(frame) < 256:
        return f"{len(frame)} bytes"
    kind = frame[KIND_OFFSET]
    told = " ".join(
        f"{name}={_number(frame, at, width):x}"
        if name in ("client", "nack", "present")
        else f"{name}={_number(frame, at, width)}"
        for name, at, width in _TOLD.get(kind, ())  # type: ignore[call-overload]  # an int
    )
    return f"{_KINDS.get(kind, kind)} view={_number(frame, 52, 4)} {told}"
