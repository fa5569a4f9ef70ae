"""Requests that this shard would refuse by its image: shard 0's commit is asked for first.

What is not found here, or not allowed, may be by now. So the request waits until the image has
reached what shard 0 had committed when it was asked, and is judged again (O5.2).

Flow: route.
"""

from collections.abc import Callable

from headrace.base.limits import OP_MAX
from headrace.base.placement import METADATA_SHARD
from headrace.ports.bus import SendToMember
from headrace.ports.network import Buffer
from headrace.shard.bus.image import MetadataImage
from headrace.shard.front.answers import Answers
from headrace.shard.front.connections import Connection
from headrace.shard.turn import Turn
from headrace.wire.bus.feed import FEED_ASK, FeedAskHeader
from headrace.wire.errors import Code
from headrace.wire.requests import RequestHeader, without_marks

_DOUBTS_MAX = 4096
_UNKNOWN = OP_MAX + 1


class _Doubted:
    """A request, and what it waits for."""

    __slots__ = ("commit", "frame", "number", "ticket")

    def __init__(self, number: int, ticket: int, frame: Buffer) -> None:
        self.number = number
        self.ticket = ticket
        self.frame = frame
        self.commit = _UNKNOWN  # of shard 0, once it has answered


class Doubts:
    """The requests that are judged again, in the order in which they came."""

    def __init__(self, image: MetadataImage, answers: Answers, turn: Turn) -> None:
        self._image = image
        self._answers = answers
        self._turn = turn
        self._waiting: dict[int, _Doubted] = {}  # by number, in the order in which they came
        self._route: Callable[[Connection, Buffer], None]

    def begin(self, route: Callable[[Connection, Buffer], None]) -> None:
        """Take who judges a request again."""
        self._route = route

    def put(self, connection: Connection, header: RequestHeader, frame: Buffer) -> bool:
        """Have a request wait until it can be refused; return whether there is room for it."""
        if len(self._waiting) >= _DOUBTS_MAX:
            return False
        self._turn.probes.hit("doubts.asked")
        number = self._turn.new_token()
        ticket = self._answers.wait(connection.number, without_marks(header))
        assert not self._image.is_current, "what is judged by what shard 0 knows is in no doubt"
        newest = next(reversed(self._waiting.values()), None)
        assert newest is None or (newest.number, newest.ticket) < (number, ticket), "in order"
        self._waiting[number] = _Doubted(number, ticket, frame)
        self._ask(number)
        return True

    def _ask(self, number: int) -> None:
        image = self._image
        assert number > 0, "0 asks nothing"
        header = FeedAskHeader(op=image.last_op, commit=image.commit, number=number)
        self._turn.out.append(SendToMember(METADATA_SHARD, (FEED_ASK.encode(header),)))

    def on_point(self, number: int, commit: int, *, is_current: bool) -> None:
        """Take what shard 0 had committed when it was asked under a number.

        Where another node may have decided more by then, nobody here may refuse for good (O6.2).
        """
        assert commit < _UNKNOWN, "a commit is the number of an op"
        doubted = self._waiting.get(number)
        if doubted is None:
            return
        assert doubted.number == number, "a request is found by the number that it asked under"
        if is_current:
            doubted.commit = min(doubted.commit, commit)  # It may have been asked twice.
            return
        self._turn.probes.hit("doubts.not_current")
        del self._waiting[number]
        self._answers.refuse_waiting(doubted.ticket, Code.TRANSIENT_NOT_ACCEPTED)

    def _forget_answered(self) -> None:
        gone = [n for n, each in self._waiting.items() if not self._answers.is_waiting(each.ticket)]
        for number in gone:
            del self._waiting[number]
        assert len(self.tickets()) == len(self._waiting), "all that are left are waited for"

    def go_on(self) -> None:
        """Judge again what the image is current for."""
        commit = self._image.commit
        ready = [each for each in self._waiting.values() if each.commit <= commit]
        if not ready:
            return
        for each in ready:
            del self._waiting[each.number]
        left = len(self._waiting)
        assert not self._image.is_current, "it does not judge while it judges"
        self._image.is_current = True
        for each in ready:
            waiting = self._answers.end(each.ticket)
            if waiting is not None:
                connection = self._answers.connections.get(waiting.connection)
                assert connection is not None, "who waits is connected"
                self._route(connection, each.frame)
        self._image.is_current = False
        assert len(self._waiting) == left, "who is judged again is not doubted again"

    def tick(self) -> None:
        """Forget those for whom nobody waits any more; ask again, as a lane may have dropped it."""
        self._forget_answered()
        for each in self._waiting.values():
            if each.commit == _UNKNOWN:
                self._ask(each.number)

    def tickets(self) -> list[int]:
        """Return the tickets of the requests that wait here."""
        tickets = [each.ticket for each in self._waiting.values()]
        return [ticket for ticket in tickets if self._answers.is_waiting(ticket)]

    def check(self) -> None:
        """Assert that whoever can be judged is, and what waits is bounded."""
        commit = self._image.commit
        for each in self._waiting.values():
            assert commit < each.commit <= _UNKNOWN, "what can be judged is judged"
            waiting = self._answers.get(each.ticket)
            if waiting is not None:
                assert waiting.late == Code.TRANSIENT_NOT_ACCEPTED, "nothing is done for it yet"
                assert waiting.header.ticket == 0, "no group has it"
        tickets = [each.ticket for each in self._waiting.values()]
        assert tickets == sorted(dict.fromkeys(tickets)), "they are judged as they came"
        numbers = [each.number for each in self._waiting.values()]
        assert numbers == list(self._waiting), "each asks under a number of its own"
        assert numbers == sorted(numbers), "they are judged as they came"
        assert len(self._waiting) <= _DOUBTS_MAX, "what waits is bounded"
