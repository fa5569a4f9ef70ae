"""How often a request may be applied: the rule of spent numbers, as clients see it (P4, O4.2).

Clients that number every request use a number once: what they send again is applied once. Others
send many requests under one number. What such a client sends on a connection on which it has read a
success under that number is new, whether the body is equal or not; so is another body.
"""

from headrace.kernel.layout import BATCH_HEADER_BYTES
from headrace.sim.violation import SimViolationError
from headrace.wire.codec import decode_exactly
from headrace.wire.commands.internal import OFFSET_MARK
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader

# What tells requests of one number apart, as far as log and client both show it.
Content = tuple[int, bytes, int]


def content_of(operation: int, batch: bytes = b"", offset: int = 0) -> Content:
    """Return the content of a request: the messages of a send, the offset of a store."""
    return operation, batch[BATCH_HEADER_BYTES:], offset


def content_in_log(header: PrepareHeader, body: bytes) -> Content:
    """Return the content of an op."""
    match header.operation:
        case Operation.SEND_MESSAGES:
            return content_of(header.operation, body)
        case Operation.STORE_CONSUMER_OFFSET:
            return content_of(header.operation, offset=decode_exactly(OFFSET_MARK, body).offset)
        case _:
            return content_of(header.operation)


class Repeats:
    """Told of every request that is sent to a partition, and of every confirmation."""

    def __init__(self) -> None:
        # By client, number and content: how often it was sent, and how often of these as new.
        self._sent: dict[tuple[int, int, Content], tuple[int, int]] = {}
        self._told: dict[tuple[int, int], dict[object, None]] = {}

    def sent(self, client: int, request: int, content: Content, *, is_spent: bool) -> None:
        """Take note of a request that leaves; whether its number is spent on the connection."""
        sent, new = self._sent.get((client, request, content), (0, 0))
        self._sent[client, request, content] = (sent + 1, new + is_spent)

    def times_max(self, client: int, request: int, content: Content, *, is_first: bool) -> int:
        """Return how often a group may apply it; `is_first`: it came first under its number."""
        sent, new = self._sent.get((client, request, content), (1, 0))
        return 1 + new if is_first else sent

    def confirmed(self, client: int, request: int, place: object, *, is_new: bool) -> None:
        """Check that a new request is not answered by where an earlier one went.

        Raises:
            SimViolationError: It was taken for a repetition, and is lost.
        """
        told = self._told.setdefault((client, request), {})
        if is_new and place in told:
            raise SimViolationError(
                "P4",
                why="new, and answered from memory",
                client=client,
                request=request,
                told=place,
            )
        told[place] = None
