"""How much memory the replies to polls may take, of all connections together.

```
being read --> sent --> written to a connection, and waiting until its peer takes it --> gone
   held        sent                          waiting
```

A reply gets a quarter of what is left, so that replies become shorter while room becomes short. The
last eighth is for replies of one message each; without any room polls wait.

Flow: reply.
"""

from collections.abc import KeysView

from headrace.base.limits import MIB

REPLIES_BYTES_MAX = 256 * MIB
READ_BYTES_MAX = MIB  # what one poll reads at once
_PARTS = 4
_RESERVED_PARTS = 8

assert READ_BYTES_MAX < REPLIES_BYTES_MAX // _RESERVED_PARTS, "the last part has room for a read"


class ReplyRoom:
    """One for a shard: every poll asks it, and the transport reports to it."""

    __slots__ = ("_held", "_sent_bytes", "_waiting_bytes", "bytes_max", "held_bytes")

    def __init__(self, bytes_max: int = REPLIES_BYTES_MAX) -> None:
        assert bytes_max > 0
        self.bytes_max = bytes_max
        self.held_bytes = 0  # by polls that read segments
        self._held: dict[int, int] = {}  # of these, by the ticket of the poll
        self._sent_bytes = 0  # not reported by the transport yet
        self._waiting_bytes = 0  # as it reported last

    @property
    def bytes_left(self) -> int:
        """How much more replies may take; below zero if one message was larger than its share."""
        assert self._sent_bytes >= 0, "a reply that was reported is counted no more"
        return self.bytes_max - self.held_bytes - self._sent_bytes - self._waiting_bytes

    @property
    def is_short(self) -> bool:
        """Whether a poll must wait."""
        return self.bytes_left <= 0

    @property
    def is_scarce(self) -> bool:
        """Whether a reply that has a message must do with what it has."""
        return self.bytes_left <= self.bytes_max // _RESERVED_PARTS

    def share(self, bytes_max: int) -> int:
        """Return how many bytes one reply may have, at most `bytes_max` and at least one.

        `bytes_max` may be negative: replies of the same turn may have used up a connection's part.
        """
        free = self.bytes_left - self.bytes_max // _RESERVED_PARTS
        return max(1, min(bytes_max, free // _PARTS))

    def hold(self, ticket: int) -> None:
        """Count a poll that begins to read segments."""
        assert ticket not in self._held, "a poll begins to read once"
        self._held[ticket] = READ_BYTES_MAX
        self.held_bytes += READ_BYTES_MAX

    def grow(self, ticket: int, gathered_bytes: int) -> None:
        """Count what such a poll has gathered by now, besides what it reads next."""
        if ticket in self._held:
            count = READ_BYTES_MAX + gathered_bytes
            assert count >= READ_BYTES_MAX, "an answer has no fewer bytes than none"
            self.held_bytes += count - self._held[ticket]
            self._held[ticket] = count

    def release(self, ticket: int) -> None:
        """Count a poll no more that has read."""
        self.held_bytes -= self._held.pop(ticket, 0)
        assert self.held_bytes >= 0, "what is released was held"

    def send(self, count: int) -> None:
        """Count a reply that is handed to the transport."""
        assert count > 0, "a reply has bytes"
        self._sent_bytes += count

    def report(self, *, written_bytes: int, waiting_bytes: int) -> None:
        """Count what the transport has written since its last report, and what waits there."""
        self._sent_bytes = max(0, self._sent_bytes - written_bytes)
        self._waiting_bytes = waiting_bytes

    def settle(self) -> None:
        """Take for written what was sent: turns are short, and reports leave out small sums."""
        self._sent_bytes = 0

    def holders(self) -> KeysView[int]:
        """Return the polls that read segments, by their tickets."""
        return self._held.keys()

    def check(self) -> None:
        """Assert that the sum is the sum of its parts, and none is less than what a poll reads."""
        assert self.held_bytes == sum(self._held.values()), "the sum is that of all polls"
        assert all(count >= READ_BYTES_MAX for count in self._held.values()), "a poll reads so much"
        assert self._sent_bytes >= 0, "a reply that was reported is counted no more"
