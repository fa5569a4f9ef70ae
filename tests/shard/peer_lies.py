"""Lies of a peer: frames that no rule of their kind forbids, and that contradict what is true.

One peer, or two that lie alike, can stall a replica with them. They must not bring it down.
"""

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.ports.machine import Artifact, Piece
from headrace.vsr.replica import Replica
from headrace.vsr.transfer_session import CLIENT_TABLE, COMMIT_HEADER, Pull
from headrace.wire.batches import admit_batch
from headrace.wire.errors import CorruptError
from headrace.wire.layout import KIND_OFFSET, Header
from headrace.wire.numbers import FrameKind, Operation
from headrace.wire.replica import artifacts as wire
from headrace.wire.replica.heartbeats import GroupBeat, encode_beats
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import body_checksum, seal
from tests.shard.peer_shots import seal_frame
from tests.shard.trio import Trio
from tests.shard.whole import make_batch
from tests.wire.test_replicas import suffix_of

CHUNK_BYTES = 256 << 10


class Liar:
    """Lies to one replica in the name of a peer, and keeps to its lies."""

    def __init__(self, prng: Prng, trio: Trio, victim: Replica) -> None:
        self._prng = prng
        self._trio = trio
        self._victim = victim
        self._told: dict[int, tuple[PrepareHeader, bytes]] = {}
        self._artifacts: list[bytes] = []

    def lie(self, sender: int) -> tuple[int, list[bytes]]:
        """Give the frames of one lie, and in whose name they are."""
        pull = self._victim.state.pull
        if pull is not None and self._prng.chance(7, 8):
            return pull.source, self._transfer(pull)
        lies = [self._order, self._announce, self._vote, self._repair, self._beat]
        return sender, self._prng.choice(lies)(sender)

    def _frame(self, kind: FrameKind, sender: int, body: bytes = b"", **fields: int) -> bytes:
        victim, layout = self._victim, LAYOUTS[kind]
        known: dict[str, int] = {
            "cluster": victim.state.options.cluster,
            "replica": sender,
            "life": self._trio.nodes[sender].starts,
            "group": victim.group,
            "origin": victim.origin,
        }
        known = {
            name: known[name] for name in known if name in layout.made.__struct_fields__
        } | fields
        header: Header = layout.made(**known)
        return seal_frame(layout, header, body)

    # Ops.

    def _make_chain(self) -> list[PrepareHeader]:
        """Give ops that follow each other, oldest first; where they begin they may contradict."""
        prng, log = self._prng, self._victim.state.log
        first = max(1, self._victim.commit_min + prng.below(4) - 1)
        before = log.get(first - 1)
        parent = prng.u64() if before is None or prng.chance(1, 3) else before.header.checksum
        made = []
        for op in range(first, first + prng.between(1, 6)):
            known = log.get(op)
            if known is not None and known.header.parent == parent and prng.chance(1, 2):
                header = known.header
            else:
                header = self._make_op(op, parent)
            made.append(header)
            parent = header.checksum
        return made

    def _make_op(self, op: int, parent: int) -> PrepareHeader:
        prng = self._prng
        operation = int(prng.choice(list(Operation)))
        body = prng.bytes(prng.choice([0, 1, 4, 8, 13, 40]))
        if prng.chance(1, 3):
            operation, body = int(Operation.SEND_MESSAGES), self._make_batch()
        elif prng.chance(1, 2):
            seen = self._find_prepare()
            if seen is not None:
                operation, body = seen
        known = self._victim.state.options
        data = PREPARE.encode(
            PrepareHeader(
                checksum_body=body_checksum(operation, body),
                cluster=known.cluster,
                size=HEADER_BYTES + len(body),
                view=self._victim.view,
                origin=known.origin,
                client=prng.choice([0, 1, 1001, 1002]),
                parent=parent,
                op=op,
                commit=prng.below(op),
                timestamp=prng.choice([0, 1, 1 << 60]),
                request=prng.below(4),
                operation=operation,
                group=known.group,
            )
        )
        header = PREPARE.decode(seal(data))
        self._told[op] = header, body
        return header

    def _find_prepare(self) -> tuple[int, bytes] | None:
        """Give an op that was really ordered, maybe in another group."""
        seen = [frame for _, frame in self._trio.seen if frame[KIND_OFFSET] == FrameKind.PREPARE]
        if not seen:
            return None
        frame = self._prng.choice(seen)
        return PREPARE.decode(frame).operation, frame[HEADER_BYTES:]

    def _make_batch(self) -> bytes:
        """Give a batch that hangs together, for a place that is not its own."""
        prng = self._prng
        count = prng.between(1, 3)
        batch = bytearray(make_batch([b"lie"] * count))
        admit_batch(
            batch,
            count,
            partition_id=prng.choice([0, 0, 0, 1, 9]),
            base_offset=prng.choice([0, 3, 4, 1 << 40]),
            base_timestamp=prng.choice([0, 1, 1 << 60]),
        )
        return bytes(batch)

    def _order(self, sender: int) -> list[bytes]:
        """Order ops behind the victim's head, and say that they are committed."""
        victim, log = self._victim, self._victim.state.log
        parent = log.checksum(victim.op) if victim.op == 0 or log.get(victim.op) else 0
        made = []
        for op in range(victim.op + 1, victim.op + self._prng.between(2, 5)):
            header = self._make_op(op, parent)
            parent = header.checksum
            header = msgspec.structs.replace(header, view=victim.view)
            made.append(PREPARE.encode(header) + self._told[op][1])
        return [*made, *self._beat(sender)]

    def _beat(self, sender: int) -> list[bytes]:
        """Say that everything is committed."""
        victim = self._victim
        beat = GroupBeat(
            victim.group,
            victim.view,
            victim.op + self._prng.below(3),
            is_declined=self._prng.chance(1, 4),
            origin=victim.origin,
        )
        journal = 0 if victim is self._trio.groups(victim.state.options.replica)[0] else 1
        body = encode_beats([beat])
        return [self._frame(FrameKind.NODE_HEARTBEAT, sender, body, journal=journal, counter=1)]

    # Views.

    def _announce(self, sender: int) -> list[bytes]:
        """Announce a view that the sender leads, with a log of its own."""
        victim = self._victim
        chain = self._make_chain()
        view = victim.view + self._prng.below(4)
        view += (sender - view) % victim.state.replicas
        head = chain[-1].op
        low = chain[0].op
        frame = self._frame(
            FrameKind.START_VIEW,
            sender,
            suffix_of(reversed(chain)),
            view=view,
            op=head,
            commit=self._prng.between(low, head),
            incarnation=victim.state.options.incarnation,
        )
        return [frame]

    def _vote(self, sender: int) -> list[bytes]:
        """Vote for a view that the victim is to lead, with a log of its own."""
        victim = self._victim
        own = victim.state.options.replica
        view = victim.view + self._prng.below(3)
        view += (own - view) % victim.state.replicas
        chain = self._make_chain()
        bits = self._prng.below(1 << len(chain))
        frame = self._frame(
            FrameKind.DO_VIEW_CHANGE,
            sender,
            suffix_of(reversed(chain)),
            view=view,
            log_view=self._prng.below(view + 1),
            op=chain[-1].op,
            commit=chain[0].op,
            nack_bitset=bits & self._prng.u64(),
            present_bitset=bits,
            is_suspect=self._prng.below(2),
        )
        return [self._frame(FrameKind.START_VIEW_CHANGE, sender, view=view), frame]

    def _repair(self, sender: int) -> list[bytes]:
        """Serve the ops of earlier lies, and others that nobody has ordered."""
        made = []
        for op in range(max(1, self._victim.commit_min - 1), self._victim.op + 3):
            if op not in self._told or self._prng.chance(1, 4):
                self._make_op(op, self._prng.u64())
            header, body = self._told[op]
            view = self._victim.view if self._prng.chance(1, 2) else 0
            data = PREPARE.encode(msgspec.structs.replace(header, view=view))
            kind = bytes([FrameKind.REPAIR_PREPARE])
            made.append(data[:KIND_OFFSET] + kind + data[KIND_OFFSET + 1 :] + body)
        evicted = self._frame(
            FrameKind.RANGE_EVICTED, sender, nonce=self._victim.state.repair_nonce, op=1
        )
        return [*made, evicted]

    # State.

    def _transfer(self, pull: Pull) -> list[bytes]:
        """Offer a state that is whole by its checksums, and damaged before they were made."""
        if pull.wanted and self._artifacts:
            return self._make_chunk(pull.source, pull.nonce)
        prng = self._prng
        commit = self._victim.commit_min + prng.between(1, 9)
        known = self._victim.state.log.get(commit)
        header = self._make_op(commit, prng.u64())
        if known is not None and prng.chance(1, 2):
            header = known.header
        pieces = [
            Artifact(COMMIT_HEADER, commit, PREPARE.encode(header)),
            Artifact(CLIENT_TABLE, commit, self._damage(self._victim.table.encode())),
            *[self._read(piece) for piece in self._export()],
        ]
        self._artifacts = [piece.data for piece in pieces]
        lines = tuple(
            wire.Artifact(each.kind, each.frontier, len(each.data), _checksum(each))
            for each in pieces
        )
        frame = self._frame(
            FrameKind.STATE_TRANSFER_TARGET,
            pull.source,
            wire.encode_manifest(lines),
            nonce=pull.nonce,
            commit_op=commit,
            available=1,
            view=pull.view,
        )
        return [frame]

    def _make_chunk(self, source: int, nonce: int) -> list[bytes]:
        made = []
        for index, data in enumerate(self._artifacts):
            fields = {"nonce": nonce, "artifact": index, "offset": 0}
            made.append(self._frame(FrameKind.STATE_CHUNK, source, data, **fields))
        self._artifacts = []
        return made

    def _export(self) -> tuple[Piece, ...]:
        """Give the state of that group as somebody has it who is further, or ours."""
        number = self._trio.groups(self._victim.state.options.replica).index(self._victim)
        return self._trio.groups(0)[number].machine.export()

    def _read(self, piece: Piece) -> Artifact:
        if isinstance(piece, Artifact):
            return Artifact(piece.kind, piece.frontier, self._damage(piece.data))
        log = self._trio.nodes[0].segments.logs.get(piece.file, b"")
        data = bytes(log[piece.position : piece.position + piece.length])
        return Artifact(piece.kind, piece.frontier, data)

    def _damage(self, data: bytes) -> bytes:
        """Change bytes in front of the checksum at the end, and make that right again."""
        prng = self._prng
        if not data or prng.chance(1, 3):
            return data
        covered = bytearray(data[:-8])
        for _ in range(prng.between(1, 3)):
            if covered and prng.chance(3, 4):
                covered[prng.below(len(covered))] = prng.choice([0, 1, 0x7F, 0x80, 0xFF])
            else:
                del covered[prng.below(len(covered) + 1) :]
        return bytes(covered) + xxh3_64(covered).to_bytes(8, "little")


def _checksum(piece: Artifact) -> int:
    try:
        return wire.artifact_checksum(piece.kind, piece.data)
    except CorruptError:
        return 1
