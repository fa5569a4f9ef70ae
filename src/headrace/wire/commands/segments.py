"""The segment plan: what a partition holds, and the files of its sealed part.

A command of our own (O8, O9.1). A reader that shares a disk with the server reads the files, and
polls the server for the rest.
"""

import msgspec

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.wire.codec import FLAG, TEXT, U32, U64, Counted, Record
from headrace.wire.commands.command import Command
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import Operation
from headrace.wire.segment import segment_name

# One reply names at most so many pieces, but always one whole segment if there is one.
PLAN_PIECES_MAX = 16_384


class PlanSegments(msgspec.Struct, frozen=True, kw_only=True):
    """Asks for the sealed segments of one partition, from the one that holds an offset on."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    from_offset: int = 0


class PlannedPiece(msgspec.Struct, frozen=True):
    """A run of whole batches of a segment; `chain` is that of their checksums, in order."""

    first_offset: int
    length: int
    chain: int


class PlannedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed segment whose bytes are all in its file.

    Its offsets are those from `base_offset` up to, not including, `end_offset`; its stamps lie
    between the two named ones, both included. `length` counts the header block, behind which
    the pieces follow each other to the end.
    """

    base_offset: int
    end_offset: int
    oldest_stamp: int  # a bound: the newest stamp of the segment before, 0 if there is none
    newest_stamp: int
    length: int
    pieces: tuple[PlannedPiece, ...]

    @property
    def messages_count(self) -> int:
        """How many messages it holds: its offsets have no gap."""
        return self.end_offset - self.base_offset

    def positions(self) -> tuple[int, ...]:
        """Return where each piece begins in the file."""
        positions = []
        position = SEGMENT_HEADER_BYTES
        for piece in self.pieces:
            positions.append(position)
            position += piece.length
        return tuple(positions)


class OffsetRange(msgspec.Struct, frozen=True):
    """Offsets from the first up to, not including, the end."""

    first: int
    end: int


class SegmentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition holds now: the offsets from `first_offset` up to `next_offset`.

    `lost` offsets between them will never exist (O3.5). Namespace, revision and epoch identify the
    partition, its incarnation and its history, as the header of every file does. Without a
    `folder` the server does not disclose where its files are. `is_more` says that further
    segments follow the last one named; ask again from its end.
    """

    namespace: int
    created_revision: int
    history_epoch: int
    first_offset: int
    next_offset: int
    folder: str
    lost: tuple[OffsetRange, ...]
    segments: tuple[PlannedSegment, ...]
    is_more: bool

    @property
    def sealed_end(self) -> int:
        """The offset where the named segments end, and polls begin."""
        return self.segments[-1].end_offset if self.segments else self.first_offset

    def path(self, segment: PlannedSegment) -> str:
        """Return the file of one of its segments, on the host of the server."""
        assert self.folder
        return f"{self.folder}/{segment_name(segment.base_offset)}"


PLAN_SEGMENTS = Command(
    90_001,
    "plan segments",
    Operation.NON_REPLICATED,
    Record(PlanSegments, stream=IDENTIFIER, topic=IDENTIFIER, partition_id=U32, from_offset=U64),
    Record(
        SegmentPlan,
        namespace=U64,
        created_revision=U64,
        history_epoch=U64,
        first_offset=U64,
        next_offset=U64,
        folder=TEXT,
        lost=Counted(U32, Record(OffsetRange, first=U64, end=U64)),
        segments=Counted(
            U32,
            Record(
                PlannedSegment,
                base_offset=U64,
                end_offset=U64,
                oldest_stamp=U64,
                newest_stamp=U64,
                length=U64,
                pieces=Counted(U32, Record(PlannedPiece, first_offset=U64, length=U64, chain=U64)),
            ),
        ),
        is_more=FLAG,
    ),
)

COMMANDS = (PLAN_SEGMENTS,)
