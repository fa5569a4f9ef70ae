"""What happened: a hash of all events and effects, and the last ones in words."""

from collections import deque
from collections.abc import Callable

import msgspec
import xxhash

from headrace.base.limits import HEADER_BYTES
from headrace.ports.bus import BusFrames, SendToMember
from headrace.ports.credentials import HashPassword, MintToken, TokenMinted, VerifyPassword
from headrace.ports.disk import FromStore, OnStore, ReplaceFile, WriteBlock, WriteJournal
from headrace.ports.network import (
    FramesArrived,
    RequestsArrived,
    SendFrame,
    SendReply,
    SendToConnection,
    Ticked,
)
from headrace.ports.segments import SegmentFile, SegmentRead, WriteIndex, WriteSegment
from headrace.wire.evictions import EVICTION
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replies import REPLY
from headrace.wire.requests import REQUEST

LAST = 300

_KINDS = {int(kind): kind.name for kind in FrameKind}
_ENCODER = msgspec.msgpack.Encoder()
_SECRETS = (VerifyPassword, HashPassword, MintToken, TokenMinted)


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
        if type(happened) in _SECRETS:  # A secret is not written down.
            happened = f"{type(happened).__name__} {happened.token}"  # type: ignore[union-attr]
        if type(happened) is SendReply:
            data = happened.frame
        elif isinstance(happened, str):
            data = happened.encode()
        else:
            data = _encode(happened)
        self._hash.update(b"%d %d %d " % (now, node, len(data)) + data)
        self._last.append((now, node, happened))
        if self._tell is not None and type(happened) is not Ticked:
            self._tell(describe(now, node, happened))

    @property
    def digest(self) -> str:
        """The hash of everything so far."""
        return f"{self._hash.intdigest():016x}"

    def last(self, count: int = LAST) -> list[str]:
        """Return the last lines, ticks left out."""
        told = [entry for entry in self._last if type(entry[2]) is not Ticked]
        return [describe(*entry) for entry in told[-count:]]


def _encode(happened: msgspec.Struct) -> bytes:
    try:
        return _ENCODER.encode(happened)
    except OverflowError:  # It has the number of a connection that lives on another shard than 0.
        fields = map(_fit, msgspec.structs.astuple(happened))
        return _ENCODER.encode([type(happened).__name__, *fields])


def _fit(value: object) -> object:
    if isinstance(value, int):
        return f"{value:x}" if value >> 64 else value
    return [_fit(each) for each in value] if isinstance(value, tuple) else value


def describe(now: int, node: int, happened: object) -> str:
    """Return one line: virtual seconds, node and shard, what."""
    shard, node = divmod(node, 100) if node > 0 else (0, node)
    who = f"{node}.{shard}" if shard else str(node)
    return f"{now / 1e6:10.6f} {who} {_short(happened)}"


def _short(happened: object) -> str:
    match happened:
        case str():
            return f"** {happened}"
        case OnStore():
            return f"{_short(happened.effect)} (store {happened.store})"
        case FromStore():
            return f"{_short(happened.event)} (store {happened.store})"
        case _:
            return (
                _short_network(happened)
                or _short_bus(happened)
                or _short_file(happened)
                or repr(happened)[:200]
            )


def _short_network(happened: object) -> str:
    match happened:
        case SendFrame():
            return f"-> {happened.replica} {_frame(happened.frame)}"
        case SendReply():
            return f"=> client {happened.client:x} {_frame(happened.frame)}"
        case SendToConnection():
            return f"=> connection {happened.connection} {_frame(b''.join(happened.parts))}"
        case FramesArrived():
            return "<- " + "; ".join(f"{who} {_frame(frame)}" for who, frame in happened.frames)
        case RequestsArrived():
            return "<= " + "; ".join(_frame(bytes(frame)) for _, frame in happened.frames)
        case _:
            return ""


def _short_bus(happened: object) -> str:
    match happened:
        case SendToMember():
            return f">> {happened.member} {_frame(b''.join(map(bytes, happened.parts)))}"
        case BusFrames():
            return "<< " + "; ".join(f"{who} {_frame(bytes(f))}" for who, f in happened.frames)
        case _:
            return ""


def _short_file(happened: object) -> str:
    match happened:
        case WriteJournal():
            return (
                f"journal {happened.sequence} file {happened.file} at {happened.position}"
                f" {len(happened.data)} bytes{' sync' if happened.sync else ''}"
            )
        case WriteBlock() | ReplaceFile():
            return f"{type(happened).__name__} {happened.name} {len(happened.data)} bytes"
        case WriteSegment():
            size = sum(len(part) for part in happened.parts)
            return f"write {_file(happened.file)} at {happened.position} {size} bytes"
        case WriteIndex():
            return f"index of {_file(happened.file)}"
        case SegmentRead():
            size = -1 if happened.data is None else len(happened.data)
            return f"read {happened.token}: {size} bytes"
        case _:
            return ""


def _file(file: SegmentFile) -> str:
    return repr(file)[12:-1]


_LAYOUTS = LAYOUTS | {each.kind: each for each in (REQUEST, REPLY, EVICTION)}
# The fields that say most about a frame.
_TOLD: dict[int, tuple[str, ...]] = {
    FrameKind.REQUEST: ("client", "request", "operation"),
    FrameKind.PREPARE: ("op", "commit", "group"),
    FrameKind.REPAIR_PREPARE: ("op", "group"),
    FrameKind.PREPARE_OK: ("op", "group"),
    FrameKind.REPLY: ("op", "request", "status"),
    FrameKind.START_VIEW_CHANGE: ("group",),
    FrameKind.DO_VIEW_CHANGE: (
        "op",
        "commit",
        "log_view",
        "nack_bitset",
        "present_bitset",
        "group",
    ),
    FrameKind.START_VIEW: ("op", "commit", "group"),
    FrameKind.EVICTION: ("client", "reason"),
    FrameKind.REQUEST_START_VIEW: ("group",),
    FrameKind.REQUEST_PREPARES: ("from_op", "to_op", "group"),
    FrameKind.RANGE_EVICTED: ("op", "group"),
    FrameKind.STATE_TRANSFER_TARGET: ("commit_op", "group"),
    FrameKind.REQUEST_STATE_CHUNK: ("offset", "artifact", "group"),
    FrameKind.NODE_HEARTBEAT: ("number", "acknowledged"),
    FrameKind.RECOVERY_REPORT: ("group", "commit"),
    FrameKind.STATE_CHUNK: ("offset", "artifact", "group"),
}
_IN_HEX = ("client", "nack_bitset", "present_bitset")


def _frame(frame: bytes) -> str:
    if len(frame) < HEADER_BYTES:
        return f"{len(frame)} bytes"
    kind = frame[KIND_OFFSET]
    if kind not in _LAYOUTS:
        return f"{_KINDS.get(kind, kind)}"
    fields = ("view", *_TOLD.get(kind, ()))
    told = " ".join(_told(name, frame[_LAYOUTS[kind].span(name)]) for name in fields)
    return f"{_KINDS[kind]} {told}"


def _told(name: str, field: bytes) -> str:
    number = int.from_bytes(field, "little")
    return f"{name}={number:x}" if name in _IN_HEX else f"{name}={number}"
