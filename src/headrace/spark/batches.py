"""Wire batches of one partition with their origin, so that damage is reported exactly.

Flow: read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.errors import DataDamaged
from headrace.kernel import BATCH_HEADER_BYTES, BatchError
from headrace.wire.batches import BatchHeader, decode_batch_header


@dataclass(frozen=True)
class Batches:
    """Whole, contiguous batches.

    `source` names their file or poll, `position` is the byte in it where they begin.
    """

    data: memoryview
    partition: int
    source: str
    position: int = 0

    def walk(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield where each batch begins in `data`, and its header; nothing else is read.

        Raises:
            DataDamaged: A batch is not complete, or belongs to another partition.
        """
        at = 0
        while at < len(self.data):
            header = self._header(at)
            yield at, header
            at += header.length

    def _header(self, at: int) -> BatchHeader:
        left = len(self.data) - at
        place = f"{self.source}: byte {self.position + at}:"
        if left < BATCH_HEADER_BYTES:
            raise DataDamaged(f"{place} {left} bytes are no batch")
        header = decode_batch_header(self.data[at : at + BATCH_HEADER_BYTES])
        if not BATCH_HEADER_BYTES <= header.length <= left:
            raise DataDamaged(f"{place} batch of {header.length} bytes where {left} are left")
        if header.partition_id != self.partition:
            raise DataDamaged(
                f"{place} batch of partition {header.partition_id}, {self.partition} expected"
            )
        return header

    def damage(self, error: BatchError, start: int) -> DataDamaged:
        """Return the error for the batch that the kernel refused in the data from `start` on."""
        fault = start + error.position
        at, header = next((at, header) for at, header in self.walk() if fault < at + header.length)
        exact = BatchError(
            error.reason, error.frame, self.position + fault, error.found, error.wanted
        )
        return DataDamaged(
            f"{self.source}: {exact}, in the batch at byte {self.position + at} with the offsets"
            f" {header.base_offset} to {header.base_offset + header.messages_count - 1}"
        )
