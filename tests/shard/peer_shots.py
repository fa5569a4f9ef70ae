"""Wrong frames of a peer: sealed right, and wrong in a field, in the body or in its length.

Half of them are frames that nodes have really sent, changed; the others are made from the layout of
their kind, with numbers around those that the victim knows and at the ends of what a field holds.
"""

from typing import Any

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.vsr.replica import Replica
from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica.artifacts import Artifact, encode_manifest
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.heartbeats import GroupBeat, encode_beats
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import body_checksum, seal
from tests.wire.test_replicas import suffix_of

PREPARES = (FrameKind.PREPARE, FrameKind.REPAIR_PREPARE)
SUFFIXES = (FrameKind.DO_VIEW_CHANGE, FrameKind.START_VIEW)
# A frame with another value there does not get past the door; most shots shall.
_DOOR = ("cluster", "release", "replica", "life", "origin", "group", "size", "checksum")


def largest(layout: Layout[Any], name: str) -> int:
    """Return the largest number that a field can hold."""
    span = layout.span(name)
    return (1 << 8 * (span.stop - span.start)) - 1


def seal_frame(layout: Layout[Any], header: Header, body: bytes) -> bytes:
    """Give a frame whose checksums and size are right."""
    operation = getattr(header, "operation", 0) if layout.kind in PREPARES else 0
    checksum = body_checksum(operation, body) if operation else xxh3_64(body)
    known = {"size": HEADER_BYTES + len(body), "checksum_body": checksum}
    return seal(layout.encode(msgspec.structs.replace(header, **known))) + body


class Shooter:
    """Draws frames for a victim, which believes that they come from `sender`."""

    def __init__(self, prng: Prng) -> None:
        self._prng = prng
        self._numbers: list[int] = []

    def shoot(self, victim: Replica, sender: int, life: int, seen: list[bytes]) -> bytes:
        """Give one frame, about one group of the victim."""
        prng = self._prng
        self._numbers = _numbers_of(victim)
        door = {
            "cluster": victim.state.options.cluster,
            "replica": sender,
            "life": life,
            "group": victim.group,
            "origin": victim.origin,
        }
        if seen and prng.chance(1, 2):
            frame = prng.choice(seen)
            kind, header = decode_replica(frame)
            layout, body = LAYOUTS[kind], frame[HEADER_BYTES:]
            names = [name for name in layout.made.__struct_fields__ if name not in _DOOR]
            changes = {name: self._value(layout, name) for name in self._pick(names)}
        else:
            layout = LAYOUTS[prng.choice(sorted(LAYOUTS))]
            header, body = layout.made(), b""
            names = [name for name in layout.made.__struct_fields__ if name not in _DOOR]
            changes = {name: self._value(layout, name) for name in names}
            if layout.kind in PREPARES:
                changes["operation"] = int(prng.choice(list(Operation)))
        changes |= {name: door[name] for name in door if name in layout.made.__struct_fields__}
        if prng.chance(1, 8):
            name = prng.choice(list(changes))
            changes[name] = self._value(layout, name)
        body = self._body(layout, victim, body)
        header = msgspec.structs.replace(header, **changes)
        frame = seal_frame(layout, header, body)
        if prng.chance(1, 8):
            broken = msgspec.structs.replace(
                header, size=self._value(layout, "size"), checksum_body=prng.u64()
            )
            frame = seal(layout.encode(broken)) + body
        return frame

    def _pick(self, names: list[str]) -> list[str]:
        return [self._prng.choice(names) for _ in range(self._prng.below(3))]

    def _value(self, layout: Layout[Any], name: str) -> int:
        """Give a number that the field can hold: one that means something, or one at the ends."""
        prng = self._prng
        most = largest(layout, name)
        ends = [0, 1, 2, 3, 127, 128, 129, most, most - 1, most // 2, most // 2 + 1]
        value = prng.choice(self._numbers if prng.chance(1, 2) else ends) + prng.below(3) - 1
        return min(max(value, 0), most)

    # Bodies.

    def _body(self, layout: Layout[Any], victim: Replica, body: bytes) -> bytes:
        prng = self._prng
        made = self._made(layout, victim) if not body or prng.chance(1, 3) else body
        if prng.chance(1, 2):
            return made
        return self._damage(made)

    def _damage(self, body: bytes) -> bytes:
        prng = self._prng
        match prng.below(4):
            case 0:
                return body[: prng.below(len(body) + 1)]
            case 1:
                return body + prng.bytes(prng.choice([1, 7, 31, 32, 255, 256]))
            case 2 if body:
                at = prng.below(len(body))
                return body[:at] + bytes([body[at] ^ 1 << prng.below(8)]) + body[at + 1 :]
            case _:
                return prng.bytes(prng.choice([0, 1, 4, 16, 31, 33, 64, 256, 300]))

    def _made(self, layout: Layout[Any], victim: Replica) -> bytes:
        prng = self._prng
        if layout.kind == FrameKind.NODE_HEARTBEAT:
            return encode_beats([self._beat(victim) for _ in range(prng.below(4))])
        if layout.kind in SUFFIXES:
            return self._suffix(victim)
        if layout.kind == FrameKind.STATE_TRANSFER_TARGET:
            kinds = [0, 1, 2, 3, 255]
            count = prng.below(5)
            u64 = LAYOUTS[FrameKind.RECOVERY_REPORT]
            return encode_manifest(
                tuple(
                    Artifact(
                        prng.choice(kinds),
                        self._value(u64, "commit"),
                        prng.choice([0, 1, 256, self._value(u64, "commit")]),
                        prng.u64(),
                    )
                    for _ in range(count)
                )
            )
        return prng.bytes(prng.below(64))

    def _beat(self, victim: Replica) -> GroupBeat:
        prng = self._prng
        layout = LAYOUTS[FrameKind.RECOVERY_REPORT]
        return GroupBeat(
            victim.group if prng.chance(3, 4) else self._value(layout, "group"),
            self._value(layout, "view"),
            self._value(layout, "commit"),
            is_declined=prng.chance(1, 4),
            origin=victim.origin,
            is_asking=prng.chance(1, 4),
            is_promise=prng.chance(1, 4),
        )

    def _suffix(self, victim: Replica) -> bytes:
        """Give headers of the victim's log, or of one that is made up above it, newest first."""
        prng = self._prng
        log = victim.state.log
        known = [log.entries[op].header for op in sorted(log.entries)]
        headers = known[prng.below(len(known) + 1) :]
        for _ in range(prng.below(4)):
            headers.append(self._following(headers[-1] if headers else None, victim))
        if headers and prng.chance(1, 2):
            at = prng.below(len(headers))
            names = [name for name in PrepareHeader.__struct_fields__ if name != "checksum"]
            changes = {name: self._value(PREPARE, name) for name in self._pick(names)}
            headers[at] = _sealed(msgspec.structs.replace(headers[at], **changes))
        return suffix_of(reversed([None if prng.chance(1, 20) else each for each in headers]))

    def _following(self, before: PrepareHeader | None, victim: Replica) -> PrepareHeader:
        return _sealed(
            PrepareHeader(
                checksum_body=1,
                cluster=victim.state.options.cluster,
                size=HEADER_BYTES + self._prng.below(100),
                view=victim.view,
                origin=victim.origin,
                parent=self._prng.u64() if before is None else before.checksum,
                op=victim.op + 1 if before is None else before.op + 1,
                commit=0 if before is None else before.commit,
                operation=int(self._prng.choice(list(Operation))),
                group=victim.group,
            )
        )


def _sealed(header: PrepareHeader) -> PrepareHeader:
    return PREPARE.decode(seal(PREPARE.encode(header)))


def _numbers_of(victim: Replica) -> list[int]:
    """Give the numbers that mean something to a replica."""
    state = victim.state
    log = state.log
    numbers = [victim.view, victim.log_view, victim.op, victim.commit_min, victim.commit_max]
    numbers += [state.repair_nonce, state.options.incarnation, state.newer_view, log.linked]
    numbers += [each.header.checksum for each in log.entries.values()]
    numbers += [each.header.parent for each in log.entries.values()]
    if state.pull is not None:
        numbers += [state.pull.nonce, state.pull.commit]
    return [*numbers, *state.offers]
