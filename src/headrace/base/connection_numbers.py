"""Numbers of connections: 128 bits, the member that has the connection on top, a counter below.

Any member finds the home of a connection in its number. Shard 0 numbers all connections of the
shards with one counter, those that it hands over and its own; the gateway numbers its own (SH-25).
"""

from collections.abc import Iterable

from headrace.base.ids import NOBODY

_COUNTER_BITS = 112
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1


def make_connection_id(member: int, counter: int) -> int:
    """Return the number of a connection; the counter stays within its field and is never 0."""
    assert 0 <= member <= NOBODY
    assert 0 < counter <= _COUNTER_MASK
    return member << _COUNTER_BITS | counter


def home_of(connection: int) -> int:
    """Return the member that has a connection; a number from outside may name one that is none."""
    return connection >> _COUNTER_BITS


class ConnectionNumbers:
    """Draws numbers for the connections of some members.

    Invariants: no number is drawn twice; the counter is never 0 and never goes down.
    """

    def __init__(self, members: Iterable[int], last: int = 0) -> None:
        assert 0 <= last <= _COUNTER_MASK
        self._members = dict.fromkeys(members)
        self._last = last

    def draw(self, member: int) -> int:
        """Return the number of a new connection whose home is this member."""
        assert member in self._members
        self._last = (self._last + 1 & _COUNTER_MASK) or 1
        return make_connection_id(member, self._last)

    def stay_above(self, connections: Iterable[int]) -> None:
        """Draw only numbers above these, which were drawn in an earlier life.

        Those of other members do not count: another node, or another number of shards, drew them.
        """
        for connection in connections:
            if home_of(connection) in self._members:
                self._last = max(self._last, connection & _COUNTER_MASK)
