"""Draws bytes of another place for a simulated folder: what a disk that mixes up its blocks gives.

Such bytes are well formed and verify by themselves (DK15). They come from the same position of
another file, mostly of one that begins with the same offset and has the same partition number: of
another topic, or one that was removed long ago, before a purge or with an earlier bearer of the
name. Mostly they are as long as one batch, so that right batches lie before and behind them.
"""

from collections.abc import Iterator, Mapping

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.base.prng import Prng
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.ports.segments import SegmentFile
from headrace.wire.batches import decode_batch_header

Image = bytes | bytearray
Images = Mapping[SegmentFile, Image]

_PAST_MAX = 12  # removed files whose blocks nobody has used again


class Astray:
    """What one disk mixes up, and the blocks that it still has of files that are gone."""

    def __init__(self, prng: Prng) -> None:
        self.prng = prng
        self.past: dict[SegmentFile, bytes] = {}
        self.past_indexes: dict[SegmentFile, bytes] = {}

    def remember(self, name: SegmentFile, image: Image, index: bytes | None) -> None:
        """Keep what a file held that is removed."""
        self.past.pop(name, None)
        self.past[name] = bytes(image)
        if index is not None:
            self.past_indexes[name] = index
        if len(self.past) > _PAST_MAX:
            oldest = next(iter(self.past))
            del self.past[oldest]
            self.past_indexes.pop(oldest, None)

    def forget(self) -> None:
        """Begin with an empty disk."""
        self.past.clear()
        self.past_indexes.clear()

    def draw_bytes(
        self, name: SegmentFile, images: Images, *, start: int, end: int
    ) -> tuple[int, bytes] | None:
        """Return a position of a file between two, and other bytes for it, if any are known."""
        own = images[name]
        spans = [span for span in _batch_spans(own) if start <= span[0] and span[1] <= end]
        if spans and not self.prng.chance(1, 4):
            start, end = self.prng.choice(spans)
        found = self._draw_source(name, self._others(name, images), start=start, own=own[start:end])
        return None if found is None else (start, found)

    def _draw_source(
        self, name: SegmentFile, others: list[tuple[SegmentFile, Image]], *, start: int, own: Image
    ) -> bytes | None:
        """Return other bytes of the same position, mostly of a file that looks alike."""
        end = start + len(own)
        known = [
            (other, bytes(image[start:end]))
            for other, image in others
            if len(image) >= end and image[start:end] != own
        ]
        alike = [each for each in known if _is_alike(each[0], name)]
        if alike and not self.prng.chance(1, 4):
            known = alike
        return self.prng.choice(known)[1] if known else None

    def draw_old(self, position: int, length: int) -> bytes | None:
        """Return what a removed file had at a position, if one reached that far."""
        known = [image for image in self.past.values() if len(image) >= position + length]
        return self.prng.choice(known)[position : position + length] if known else None

    def draw_victim(self, name: SegmentFile, images: Images, position: int) -> SegmentFile | None:
        """Return the file that a write goes to instead: one that reaches beyond that position."""
        known = [
            other for other, image in images.items() if other != name and len(image) > position
        ]
        alike = [other for other in known if _is_alike(other, name)]
        if alike and not self.prng.chance(1, 4):
            known = alike
        return self.prng.choice(known) if known else None

    def draw_pair(self, images: Images) -> tuple[SegmentFile, SegmentFile] | None:
        """Return two files of one length that hold different batches; the second may be gone."""
        pairs = [
            (name, other)
            for name, image in images.items()
            for other, held in self._others(name, images)
            if len(held) == len(image) > SEGMENT_HEADER_BYTES
            and held[SEGMENT_HEADER_BYTES:] != image[SEGMENT_HEADER_BYTES:]
        ]
        alike = [pair for pair in pairs if _is_alike(*pair)]
        return self.prng.choice(alike or pairs) if pairs else None

    def draw_index(self, name: SegmentFile, indexes: Mapping[SegmentFile, bytes]) -> bytes | None:
        """Return the index of another file."""
        known = [
            data for other, data in (*indexes.items(), *self.past_indexes.items()) if other != name
        ]
        return self.prng.choice(known) if known else None

    def _others(self, name: SegmentFile, images: Images) -> list[tuple[SegmentFile, Image]]:
        return [each for each in (*images.items(), *self.past.items()) if each[0] != name]


def _is_alike(one: SegmentFile, other: SegmentFile) -> bool:
    """Whether a batch of one file could be taken for one of the other by its header."""
    numbers = [unpack_namespace(GroupId(file.namespace)).partition for file in (one, other)]
    return one.base_offset == other.base_offset and numbers[0] == numbers[1]


def _batch_spans(image: Image) -> Iterator[tuple[int, int]]:
    """Return where the batches of a file begin and end, as far as they follow each other."""
    start = SEGMENT_HEADER_BYTES
    while start + BATCH_HEADER_BYTES <= len(image):
        end = start + decode_batch_header(image[start : start + BATCH_HEADER_BYTES]).length
        if not start + BATCH_HEADER_BYTES <= end <= len(image):
            return
        yield start, end
        start = end
