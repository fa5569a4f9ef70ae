"""Answers what other members ask of this shard (O5.9); `Gather` is the other end.

A question may name a commit of the metadata: it is answered once the metadata here is that of who
asks, so that whoever has just made something finds it counted.

Flow: reply.
"""

from collections.abc import Callable, Mapping
from typing import Any

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.ports.bus import SendToMember
from headrace.ports.network import Buffer
from headrace.shard.metadata import Metadata
from headrace.shard.turn import Turn
from headrace.wire.bus.feed import GATHERED, GatherHeader
from headrace.wire.bus.gathered import ANSWERS, QUESTIONS
from headrace.wire.codec import decode_exactly, encode
from headrace.wire.errors import DecodeError

EARLY_TICKS = 300  # nobody waits longer for an answer
EARLY_MAX = 1024


class Reporter:
    """The questions of others that wait for metadata; all else is answered as it comes."""

    def __init__(
        self, metadata: Metadata, by_subject: Mapping[int, Callable[[Any], object]], turn: Turn
    ) -> None:
        self._metadata = metadata
        self._by_subject = by_subject
        self._turn = turn
        # By member and number: the question, and when it came.
        self._early: dict[tuple[int, int], tuple[GatherHeader, bytes, int]] = {}
        assert by_subject.keys() == ANSWERS.keys(), "every subject is answered"

    def on_question(self, sender: int, header: GatherHeader, body: Buffer) -> None:
        """Answer, now or when the metadata here is that of who asks."""
        if header.commit <= self._metadata.commit:
            self._early.pop((sender, header.number), None)
            self._answer(sender, header, body)
        elif len(self._early) < EARLY_MAX:
            self._turn.probes.hit("reports.early")
            key = (sender, header.number)
            self._early.setdefault(key, (header, bytes(body), self._turn.clock.now))
        else:
            self._turn.probes.hit("reports.too_many")  # It is asked again.
        assert len(self._early) <= EARLY_MAX, "what waits is bounded"

    def after_feed(self) -> None:
        """Answer what waited for the metadata; forget what nobody waits for any more."""
        if not self._early:
            return
        oldest, waiting = self._turn.clock.now - EARLY_TICKS, self._early
        self._early = {}
        for (sender, number), (header, body, came) in waiting.items():
            if header.commit <= self._metadata.commit:
                self._answer(sender, header, body)
            elif came > oldest:
                self._early[sender, number] = (header, body, came)
        assert len(self._early) <= len(waiting), "each is answered, forgotten, or waits on"

    def _answer(self, sender: int, header: GatherHeader, body: Buffer) -> None:
        subject = header.subject
        assert header.commit <= self._metadata.commit, "it is told by metadata that is as new"
        try:
            question = decode_exactly(QUESTIONS[subject], body)
        except DecodeError:
            self._turn.probes.hit("bus.refused")
            return
        answer = encode(ANSWERS[subject], self._by_subject[subject](question))
        if HEADER_BYTES + len(answer) > FRAME_BYTES_MAX:
            self._turn.probes.hit("reports.too_large")  # No lane takes it: this shard is missing.
            return
        told = GatherHeader(
            size=HEADER_BYTES + len(answer),
            number=header.number,
            subject=subject,
            commit=self._metadata.commit,
        )
        self._turn.out.append(SendToMember(sender, (GATHERED.encode(told), answer)))

    def check(self) -> None:
        """Assert that what can be answered is, and that what waits is bounded."""
        commit, now = self._metadata.commit, self._turn.clock.now
        assert len(self._early) <= EARLY_MAX, "what waits is bounded"
        for (_, number), (header, _, came) in self._early.items():
            assert header.commit > commit, "what can be answered is"
            assert header.number == number, "a question is found by its number"
            assert came <= now, "nobody asks in the future"
