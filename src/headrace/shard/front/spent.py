"""Which request numbers are spent on a connection: a success under them was written to it (O4.2).

A client that got its answer does not ask again, and an answer that got lost took its connection
with it. So what comes under a spent number on that connection is a new request, equal or not.

Two numbers per connection are enough. Clients that number every request never come back to a spent
number. Those that do not number stay at one number until their next metadata request, which raises
it. So whatever is asked under a number far below the highest is of neither: it counts as not spent,
and the partition's table answers it, which never applies anything twice.

Invariants: only answers to requests for partitions count: reads carry the number that the next
            request will take; numbers of one client id say nothing about those of another.
"""

WINDOW = 128
_WINDOW_MASK = (1 << WINDOW + 1) - 1


class Spent:
    """The spent numbers of the client that a connection belongs to."""

    __slots__ = ("_numbers", "client", "highest")

    def __init__(self, client: int) -> None:
        self.client = client
        self.highest = 0  # every number above it is not spent
        self._numbers = 0  # bit n: whether the number highest - n is spent

    def __contains__(self, number: int) -> bool:
        """Whether a number is spent."""
        below = self.highest - number
        return 0 <= below <= WINDOW and bool(self._numbers >> below & 1)

    def note(self, number: int) -> None:
        """Remember that a success was written."""
        above = number - self.highest
        if above > 0:
            # Far above, all that is known falls out of the window; no shift is ever larger.
            shift = above if above <= WINDOW else WINDOW + 1
            self._numbers = (self._numbers << shift | 1) & _WINDOW_MASK
            self.highest = number
        elif -above <= WINDOW:
            self._numbers |= 1 << -above
        assert self.highest >= number, "no number above the highest is spent"

    def check(self) -> None:
        """Assert that the bits are those of numbers in the window, the highest among them."""
        assert self._numbers <= _WINDOW_MASK, "no number outside of the window"
        assert self.highest == 0 or self._numbers & 1 == 1, "the highest number is spent"
        assert self._numbers >> self.highest + 1 == 0, "no number is below 0"
        assert self.client or not self.highest, "numbers are spent by a client"
        assert self.highest + 1 not in self, "every number above the highest is not spent"
