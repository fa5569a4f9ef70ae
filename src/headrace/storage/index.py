"""Where the journal holds each op of each group.

A journal holds hundreds of thousands of small ops, so an op costs bytes here and no objects: the
places of consecutive ops in one file are packed into one run.

Invariants: an op that was truncated, replaced or overwritten is not held; what is held is the
            newest entry of its op; the runs of a group lie in the order of their ops and none
            overlaps another.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from struct import Struct

from headrace.storage.records import Place

_PLACE = Struct("<QQQi?")  # all of a place but the ordinal of its file


class _Run:
    """Consecutive ops of one group that lie in one file."""

    __slots__ = ("end", "first", "ordinal", "packed")

    def __init__(self, ordinal: int, first: int, packed: bytearray) -> None:
        self.ordinal = ordinal
        self.first = first
        self.end = first + len(packed) // _PLACE.size
        self.packed = packed

    def append(self, place: Place) -> None:
        """Hold one more op behind the last."""
        assert place.ordinal == self.ordinal, "a run lies in one file"
        self.packed += _PLACE.pack(
            place.header_hash,
            place.header_at,
            place.body_at,
            place.body_bytes,
            place.is_never_held,
        )
        self.end += 1

    def get(self, op: int) -> Place:
        """Return the place of an op of the run."""
        assert self.first <= op < self.end, "another run holds it"
        header_hash, header_at, body_at, body_bytes, is_never_held = _PLACE.unpack_from(
            self.packed, (op - self.first) * _PLACE.size
        )
        return Place(self.ordinal, header_at, header_hash, body_at, body_bytes, is_never_held)

    def check(self, file_bytes: int) -> None:
        """Assert that the run is whole, and that its last op lies within its file."""
        assert self.first < self.end, "an empty run holds its place for nothing"
        assert len(self.packed) == (self.end - self.first) * _PLACE.size, "one place for each op"
        place = self.get(self.end - 1)
        assert 0 < place.header_at < file_bytes, "a prepare follows the header of its record"
        if place.body_at:
            assert place.header_at < place.body_at, "bodies follow the entries of their record"
            assert place.body_at + place.body_bytes <= file_bytes, "a record is in one file"
            assert not place.is_never_held, "an op with a body was held"

    def cut(self, op: int) -> "_Run":
        """End before an op; return the rest as a run of its own."""
        assert self.first < op < self.end, "a cut leaves two runs"
        kept_bytes = (op - self.first) * _PLACE.size
        rest = _Run(self.ordinal, op, self.packed[kept_bytes:])
        del self.packed[kept_bytes:]
        self.end = op
        return rest


def _first_of(run: _Run) -> int:
    return run.first


class Index:
    """Finds ops by group and number, and forgets whole files."""

    def __init__(self) -> None:
        self._runs: dict[int, list[_Run]] = {}  # by group
        self._groups_of: dict[int, dict[int, None]] = {}  # those with ops in a file, by ordinal

    def put(self, group: int, op: int, place: Place) -> None:
        """Hold an op; an older entry of the same op is not held any more."""
        assert op > 0, "op 0 is the empty log"
        if group not in self._runs:
            self._runs[group] = []
        runs = self._runs[group]
        if runs and (last := runs[-1]).end == op and last.ordinal == place.ordinal:
            # The usual case: the next op of the group, in the same file.
            last.packed += _PLACE.pack(
                place.header_hash,
                place.header_at,
                place.body_at,
                place.body_bytes,
                place.is_never_held,
            )
            last.end = op + 1
            return
        at = len(runs)
        if at and runs[-1].end > op:
            at = _split(runs, op)
            del runs[at : _split(runs, op + 1)]
        if not at or runs[at - 1].end != op or runs[at - 1].ordinal != place.ordinal:
            runs.insert(at, _Run(place.ordinal, op, bytearray()))
            at += 1
            self._groups_of.setdefault(place.ordinal, {})[group] = None
        runs[at - 1].append(place)
        assert runs[at - 1].end == op + 1, "the op stands at its place in the run"
        assert at == 1 or runs[at - 2].end <= runs[at - 1].first, "runs do not overlap"

    def find(self, group: int, op: int) -> Place | None:
        """Return the place of an op, or None."""
        runs = self._runs.get(group, [])
        at = bisect_right(runs, op, key=_first_of)
        if not at or runs[at - 1].end <= op:
            return None
        return runs[at - 1].get(op)

    def truncate(self, group: int, from_op: int) -> None:
        """Drop the ops of a group from one on."""
        runs = self._runs.get(group, [])
        del runs[_split(runs, from_op) :]
        assert not runs or runs[-1].end <= from_op, "no op from there on is held"

    def drop_group(self, group: int) -> None:
        """Drop all ops of a group."""
        self._runs.pop(group, None)

    def drop_file(self, ordinal: int) -> None:
        """Drop what lies in a file that is about to be overwritten."""
        for group in self._groups_of.pop(ordinal, ()):
            kept = [run for run in self._runs.get(group, ()) if run.ordinal != ordinal]
            if kept:
                self._runs[group] = kept
            else:
                self._runs.pop(group, None)

    def held_in(self, ordinal: int, above: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Yield the groups and ops whose newest entry lies in a file, above an op of each group."""
        for group in self._groups_of.get(ordinal, ()):
            lowest = above.get(group, 0) + 1
            for run in self._runs.get(group, ()):
                if run.ordinal == ordinal:
                    for op in range(max(run.first, lowest), run.end):
                        yield group, op

    def check(self, *, newest: int, files_count: int, file_bytes: int) -> None:
        """Assert that runs are in order, and that no place is in a file that is overwritten."""
        oldest = newest - files_count + 1
        for group, runs in self._runs.items():
            for before, after in pairwise(runs):
                assert before.end <= after.first, "an op has one place"
            for run in runs:
                run.check(file_bytes)
                assert oldest <= run.ordinal <= newest, "an overwritten file holds no op"
                assert group in self._groups_of[run.ordinal], "a file is dropped for each group"
        for ordinal in self._groups_of:
            assert oldest <= ordinal <= newest, "an overwritten file is forgotten"


def _split(runs: list[_Run], op: int) -> int:
    """Split the run that crosses the start of an op; return the index of the first run after it."""
    at = bisect_left(runs, op, key=_first_of)
    if at and runs[at - 1].end > op:
        runs.insert(at, runs[at - 1].cut(op))
    assert not at or runs[at - 1].end <= op, "no run reaches over the start of the op"
    return at
