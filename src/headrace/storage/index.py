"""Where the journal holds each op of each group.

Invariants: an op that was truncated, replaced or overwritten is not held; what is held is the
            newest entry of its op.
"""

from headrace.storage.records import Place


class _Group:
    """The ops of one group, and the start of the run that peers can be served from."""

    __slots__ = ("is_stale", "newest", "places", "run_start")

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self.newest = 0  # the newest op with a body
        self.run_start = 0
        self.is_stale = False

    def put(self, op: int, place: Place) -> None:
        if not self.is_stale and place.body_at and op == self.newest + 1:
            self.newest = op
            self.run_start = self.run_start or op
        else:
            self.is_stale = True
        self.places[op] = place

    def oldest(self) -> int:
        if self.is_stale:
            self.newest = max((op for op, place in self.places.items() if place.body_at), default=0)
            op = self.newest
            while (place := self.places.get(op)) is not None and place.body_at:
                op -= 1
            self.run_start = op + 1 if self.newest else 0
            self.is_stale = False
        return self.run_start


class Index:
    """Finds ops by group and number, and forgets whole files."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._by_file: dict[int, list[tuple[int, int]]] = {}

    def put(self, group: int, op: int, place: Place) -> None:
        """Hold an op; an older entry of the same op is not held any more."""
        assert op > 0
        held = self._groups.get(group)
        if held is None:
            held = self._groups[group] = _Group()
        held.put(op, place)
        self._by_file.setdefault(place.ordinal, []).append((group, op))

    def find(self, group: int, op: int) -> Place | None:
        """Give where an op lies."""
        held = self._groups.get(group)
        return held.places.get(op) if held else None

    def truncate(self, group: int, from_op: int) -> None:
        """Drop the ops of a group from one on."""
        held = self._groups.get(group)
        if held is None:
            return
        for op in [op for op in held.places if op >= from_op]:
            del held.places[op]
            held.is_stale = True

    def drop_group(self, group: int) -> None:
        """Drop all ops of a group."""
        self._groups.pop(group, None)

    def drop_file(self, ordinal: int) -> None:
        """Drop what lies in a file that is about to be overwritten."""
        for group, op in self._by_file.pop(ordinal, ()):
            held = self._groups.get(group)
            place = held.places.get(op) if held else None
            if held is not None and place is not None and place.ordinal == ordinal:
                del held.places[op]
                held.is_stale = True

    def held_in(self, ordinal: int) -> list[tuple[int, int]]:
        """Give the groups and ops whose newest entry lies in a file, once each, in their order."""
        named = dict.fromkeys(self._by_file.get(ordinal, ()))
        return [
            (group, op)
            for group, op in named
            if (place := self.find(group, op)) is not None and place.ordinal == ordinal
        ]

    def oldest_op(self, group: int) -> int:
        """Give the lowest op of the run with bodies that ends at the newest; 0 if there is none."""
        held = self._groups.get(group)
        return held.oldest() if held else 0
