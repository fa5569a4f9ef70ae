"""Asks other shards for what a read needs, and says who did not answer in time (O5.9).

```
ask -> a frame to each shard   -> all have answered: done
                               -> refused by its lane: asked again after 100 ms
                               -> silent: asked again each second
                               -> its lanes are closed, or 3 s have passed: it is missing
```

An answer that comes too late, or twice, is dropped: a question has a number of its own.

Flow:       route, reply.
Invariants: every question ends, 3 s after it was asked at the latest; those that did not answer are
            named to whoever asked, counted, and reported to the operator once.
"""

from typing import Any

from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD
from headrace.ports.bus import BusRefused, DropReason, SendToMember
from headrace.ports.network import Buffer
from headrace.ports.recovered import Finding
from headrace.shard.front.gathered_reads import Ask, Told
from headrace.shard.turn import Turn
from headrace.wire.bus.feed import GATHER, GatherHeader
from headrace.wire.bus.gathered import ANSWERS
from headrace.wire.codec import decode_exactly
from headrace.wire.errors import DecodeError

QUESTIONS_MAX = 256
WAIT_TICKS = 300
AGAIN_TICKS = 100  # a frame, or its answer, may be lost
REFUSED_TICKS = 10  # a lane that was full may have room again
SILENT = "silent"

assert REFUSED_TICKS < AGAIN_TICKS < WAIT_TICKS, "a question is asked more than once"


class _Question:
    """What was asked for one request, what was told, and whom it waits for."""

    __slots__ = ("again", "ask", "due", "ticket", "told")

    def __init__(self, ticket: int, ask: Ask, due: int) -> None:
        self.ticket = ticket
        self.ask = ask
        self.due = due
        self.told: dict[int, Any] = {}
        self.again: dict[int, int] = {}  # who has not answered, and when it is asked again


class Gather:
    """The questions of shard 0 that are not answered yet, by number."""

    def __init__(self, shard_count: int, findings: list[Finding], turn: Turn) -> None:
        assert shard_count > 1, "who is alone asks nobody"
        self._siblings = dict.fromkeys(range(1, shard_count))
        self._findings = findings
        self._turn = turn
        self._questions: dict[int, _Question] = {}
        self._lost: dict[int, None] = {}  # shards whose lanes are closed
        self._silent: dict[int, None] = {}  # those that were reported, until they answer
        self.done: Told  # whoever answers reads sets it

    @property
    def has_room(self) -> bool:
        """Whether one more question can be asked."""
        return len(self._questions) < QUESTIONS_MAX

    def ask(self, ticket: int, ask: Ask) -> None:
        """Ask for the request of a ticket."""
        assert self.has_room, "questions are bounded"
        assert len(ask.members) > 0, "somebody is asked"
        assert dict.fromkeys(ask.members).keys() <= self._siblings.keys(), "all are of this node"
        number = self._turn.new_token()
        assert number not in self._questions, "a number is given once"
        question = _Question(ticket, ask, self._turn.clock.now + WAIT_TICKS)
        self._questions[number] = question
        self._turn.probes.hit("gather.asked")
        for member in ask.members:
            if member not in self._lost:
                self._send(number, question, member)
        self._end_if_told(number, question)

    def _send(self, number: int, question: _Question, member: int) -> None:
        ask = question.ask
        assert member not in question.told, "who has answered is not asked again"
        question.again[member] = self._turn.clock.now + AGAIN_TICKS
        header = GatherHeader(
            size=HEADER_BYTES + len(ask.body),
            number=number,
            subject=ask.subject,
            commit=ask.commit,
        )
        self._turn.out.append(SendToMember(member, (GATHER.encode(header), ask.body)))

    def on_answer(self, sender: int, header: GatherHeader, body: Buffer) -> None:
        """Take what a shard has told."""
        question = self._questions.get(header.number)
        if question is None or sender not in question.again:
            self._turn.probes.hit("gather.late")
            return
        try:
            told = decode_exactly(ANSWERS[question.ask.subject], body)
        except DecodeError:
            self._turn.probes.hit("bus.refused")
            return
        del question.again[sender]
        assert sender not in question.told, "an answer is taken once"
        question.told[sender] = told
        self._silent.pop(sender, None)
        self._end_if_told(header.number, question)

    def on_refused(self, event: BusRefused) -> None:
        """Ask a shard again whose lane has refused a question; not one whose lanes are closed."""
        assert event.member in self._siblings, "only other shards are asked"
        if event.reason == DropReason.DISCONNECTED:
            self.on_lost(event.member)
            return
        soon = self._turn.clock.now + REFUSED_TICKS
        for question in self._questions.values():
            if event.member in question.again:  # Which of them it was, a lane does not say.
                question.again[event.member] = min(question.again[event.member], soon)

    def on_lost(self, member: int) -> None:
        """Wait no longer for a shard that has ended."""
        assert member != METADATA_SHARD, "nobody loses itself"
        self._lost[member] = None
        for number, question in list(self._questions.items()):
            if question.again.pop(member, None) is not None:
                self._end_if_told(number, question)

    def tick(self) -> None:
        """End the questions whose time is over, and ask again who is silent."""
        now = self._turn.clock.now
        for number, question in list(self._questions.items()):
            if now >= question.due:
                question.again.clear()
                self._end_if_told(number, question)
                continue
            for member, again in question.again.items():
                if now >= again:
                    self._turn.probes.hit("gather.asked_again")
                    self._send(number, question, member)
        dues = [question.due for question in self._questions.values()]
        assert not dues or now < dues[0], "no question waits longer than its time"

    def _end_if_told(self, number: int, question: _Question) -> None:
        if question.again:
            return
        del self._questions[number]
        told, ask = question.told, question.ask
        missing = tuple([each for each in ask.members if each not in told])
        assert len(missing) + len(told) == len(ask.members), "who did not answer is missing"
        for member in missing:
            self._report(member)
        self.done(question.ticket, ask.subject, told, missing)

    def _report(self, member: int) -> None:
        """Count that a shard is missing, and say so once, until it answers again."""
        self._turn.probes.hit("gather_missing_total")
        if member not in self._silent:
            self._silent[member] = None
            text = "its lanes are closed" if member in self._lost else "no answer within 3 s"
            text += "; the last known figures stand for it"
            self._findings.append(Finding(SILENT, f"shard {member}", 0, text))
        assert member in self._silent, "who is missing was reported"

    def check(self) -> None:
        """Assert that every question is bounded, and waits for shards that can answer."""
        now = self._turn.clock.now
        assert len(self._questions) <= QUESTIONS_MAX, "questions are bounded"
        dues = [question.due for question in self._questions.values()]
        assert dues == sorted(dues), "questions end in the order in which they were asked"
        assert not dues or now <= dues[0], "a question ends when its time is over"
        tickets = dict.fromkeys(question.ticket for question in self._questions.values())
        assert len(tickets) == len(self._questions), "a request asks one question"
        for question in self._questions.values():
            assert question.again, "what all have answered is done"
            assert not question.again.keys() & question.told.keys(), "an answer ends the wait"
            assert not question.again.keys() & self._lost.keys(), "nobody waits for who is gone"
            assert all(each <= now + AGAIN_TICKS for each in question.again.values()), "in time"
        assert self._silent.keys() <= self._siblings.keys(), "all are of this node"
        assert self._lost.keys() <= self._siblings.keys(), "all are of this node"
