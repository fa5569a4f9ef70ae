"""Answers purges once the partitions here have applied them: whoever asked finds them empty.

Flow: reply.
"""

from typing import TYPE_CHECKING

from headrace.ports.network import SendReply
from headrace.shard.front.answers import Answers
from headrace.shard.owned.partitions import Partitions
from headrace.wire.numbers import Operation
from headrace.wire.replies import REPLY

if TYPE_CHECKING:
    from collections.abc import Callable

PURGES = (Operation.PURGE_STREAM, Operation.PURGE_TOPIC)


class Purges:
    """Those that metadata has decided and partitions have not applied yet."""

    def __init__(self, partitions: Partitions, answers: Answers) -> None:
        self._partitions = partitions
        self._answers = answers
        # Whether other shards have applied all purges; a shard that is alone has none.
        self.are_others_purged: Callable[[], bool] = _always
        self._held: dict[int, bytes] = {}  # answers, by the tickets of their requests
        self.is_awake = False  # whether the end of the turn has work here

    def hold(self, effect: SendReply) -> None:
        """Hold the answer of the metadata group back, if somebody waits for it."""
        ticket = self._answers.keep_waiting(effect)
        if ticket is not None:
            assert ticket not in self._held, "a request has one answer"
            self._held[ticket] = effect.frame
            self.is_awake = True

    def after_turn(self) -> None:
        """Answer once all purges are applied."""
        self._partitions.look_after_ops()  # A purge may have been applied in this very turn.
        if not self._partitions.is_purged or not self.are_others_purged():
            return
        answers = self._answers
        held, self._held = self._held, {}
        self.is_awake = False
        for ticket, frame in held.items():
            waiting = answers.end(ticket)
            if waiting is not None:
                answers.send(waiting.connection, frame)
        assert not self._held, "no answer leads to another that is held"

    def check(self) -> None:
        """Assert that a purge which waits is looked at."""
        if self._held:
            assert self.is_awake, "a purge that waits is looked at"
            is_applied = self._partitions.is_purged and self.are_others_purged()
            assert not is_applied, "a purge that is applied is answered"
        for ticket, frame in self._held.items():
            assert ticket > 0, "who waits has a ticket"
            assert REPLY.decode(frame).operation in PURGES, "only the answer to a purge is held"

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        return list(self._held)

    def tick(self) -> None:
        """Forget the answers for which nobody waits any more."""
        answers = self._answers
        self._held = {
            ticket: frame for ticket, frame in self._held.items() if answers.is_waiting(ticket)
        }


def _always() -> bool:
    return True
