"""Reads back from the journal what a checkpoint cannot vouch for, so that the journal keeps it.

A partition whose segment failed has committed ops that are in the journal alone (P7). A checkpoint
keeps that partition as it was when its segments were last durable, and the ops since then travel to
the head of the journal like uncommitted ones: the files behind them become free for the others.

Flow: store.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping

from headrace.storage.store import Store
from headrace.wire.replica.prepares import PREPARE

_READS_MAX = 64  # on their way at a time
_TRIES_MAX = 3  # of one read: a disk may fail once


class CarriedOps:
    """The ops that one checkpoint carries along, in memory until it is durable."""

    def __init__(self, store: Store, new_token: Callable[[], int]) -> None:
        self._store = store
        self._new_token = new_token
        self._wanted: deque[tuple[int, int, int]] = deque()  # group, op, which try
        self.reading: dict[int, tuple[int, int, int]] = {}  # by token
        self._found: dict[tuple[int, int], tuple[bytes, bytes] | None] = {}
        self.missing: dict[int, None] = {}  # groups with an op that the journal does not hold

    @property
    def is_complete(self) -> bool:
        """Whether all that was wanted has been read, or is known to be missing."""
        return not (self._wanted or self.reading)

    def want(self, group: int, *, above: int, until: int) -> None:
        """Have the ops of a group read, those above one up to another."""
        assert above <= until, "a group does not go back"
        assert not any(key[0] == group for key in self._found), "a group is carried once"
        self._wanted.extend((group, op, 1) for op in range(above + 1, until + 1))

    def read_on(self) -> None:
        """Ask for as many of the wanted ops as may be on their way."""
        while self._wanted and len(self.reading) < _READS_MAX:
            group, op, attempt = self._wanted.popleft()
            token = self._new_token()
            assert token not in self.reading, "a token names one read"
            if self._store.read(group, op, token):
                self.reading[token] = (group, op, attempt)
            else:
                self.missing[group] = None

    def on_read(self, token: int, header: bytes, body: bytes) -> bool:
        """Take an op that was read; whether it was asked for here."""
        asked = self.reading.pop(token, None)
        if asked is None:
            return False
        group, op, attempt = asked
        assert (group, op) not in self._found, "an op is read once"
        if header:
            self._found[group, op] = (header, body)
        elif attempt < _TRIES_MAX:
            self._wanted.append((group, op, attempt + 1))
        else:
            self._found[group, op] = None
        self.read_on()
        return True

    def holds(self, group: int, op: int) -> bool:
        """Whether this op is one of those that travel."""
        return (group, op) in self._found

    def get(self, group: int, op: int) -> tuple[bytes, bytes] | None:
        """Return header and body of such an op; none if the disk does not give them."""
        return self._found[group, op]

    def clear(self) -> None:
        """Let go of what was read: the journal has it at its head now."""
        assert self.is_complete
        self._found.clear()
        self.missing.clear()

    def check(self, bounds: Mapping[int, tuple[int, int]]) -> None:
        """Assert that reads are bounded, and that an op is wanted, being read or found.

        `bounds` says of each group in the checkpoint as of which op it is there, and up to which op
        it has come.
        """
        assert len(self.reading) <= _READS_MAX, "reads on their way are bounded"
        is_busy = len(self.reading) == _READS_MAX
        assert is_busy or not self._wanted, "whatever may be asked for is asked for"
        open_ops = [*self._wanted, *self.reading.values()]
        assert len({each[:2]: None for each in open_ops}) == len(open_ops), "an op is wanted once"
        for group, op, attempt in open_ops:
            assert 1 <= attempt <= _TRIES_MAX, "a read is tried a few times"
            assert (group, op) not in self._found, "what is found is not read again"
        for (group, op), found in self._found.items():
            if found is not None:
                header = PREPARE.decode(found[0])
                assert (header.group, header.op) == (group, op), "an op travels under its number"
        self._check_ranges(bounds, [*(each[:2] for each in open_ops), *self._found])

    def _check_ranges(
        self, bounds: Mapping[int, tuple[int, int]], ops: list[tuple[int, int]]
    ) -> None:
        """Assert that all ops travel that the checkpoint does not have, and no others."""
        counts = Counter(group for group, _ in ops)
        for group, op in ops:
            above, until = bounds[group]
            assert above < op <= until, "what the checkpoint has need not travel"
        for group, ops_count in counts.items():
            above, until = bounds[group]
            is_whole = ops_count == until - above
            assert is_whole or group in self.missing, "what the checkpoint lacks travels, all of it"
