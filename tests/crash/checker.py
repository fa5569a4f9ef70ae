"""Judges histories: what clients were told against what the partition holds.

| rule | says |
|---|---|
| H1 lost | what was confirmed is there, at its offset |
| H2 phantom | what is there was sent, and its send was not refused for good |
| H3 inconsistent | an offset names the same message in every read |
| H4 duplicate | a message has one offset; a batch is there whole, once |
| H5 gap | offsets follow each other, but for ranges that were reported lost |
| H6 order | a send that was confirmed before another began lies before it |
| H8 vanished | what a read has shown is there in every later one |
| H10 offset | a stored offset is the last confirmed one, or a later one that was never answered |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.crash.client import Send
from tests.crash.payloads import Key, Seen


class Violation(NamedTuple):
    """What is wrong, by its rule."""

    rule: str
    text: str


@dataclass
class PartitionChecker:
    """Judges one partition over all its restarts; `check` is called with each full read."""

    shown: dict[int, Key | None] = field(default_factory=dict)
    lost_ranges: list[tuple[int, int]] = field(default_factory=list)

    def check(self, sends: Sequence[Send], seen: Sequence[Seen]) -> list[Violation]:
        """Judge a read of the whole partition against all sends to it so far."""
        found = {message.offset: message.key for message in seen}
        violations = [
            *self._check_shown(found),
            *self._check_gaps(seen),
            *_check_sent(sends, seen),
            *self._check_confirmed(sends, found),
            *_check_order(sends),
        ]
        self.shown.update(found)
        return violations

    def lose(self, start: int, end: int) -> None:
        """Note a range that the node has reported as lost by a power cut, and forget it."""
        assert start < end
        if self.lost_ranges and start <= self.lost_ranges[-1][1]:
            start = self.lost_ranges.pop()[0]  # Nothing was sent since: it is one range now.
        self.lost_ranges.append((start, end))
        for offset in [each for each in self.shown if start <= each < end]:
            del self.shown[offset]

    def is_lost(self, offset: int) -> bool:
        """Whether an offset lies in a range that was reported."""
        return any(start <= offset < end for start, end in self.lost_ranges)

    def _check_shown(self, found: dict[int, Key | None]) -> Iterable[Violation]:
        for offset, key in self.shown.items():
            if offset not in found:
                yield Violation("H8", f"offset {offset} with {key} is gone")
            elif found[offset] != key:
                yield Violation("H3", f"offset {offset} was {key} and is {found[offset]}")

    def _check_gaps(self, seen: Sequence[Seen]) -> Iterable[Violation]:
        expected = 0
        for message in seen:
            if message.offset != expected:
                is_told = (expected, message.offset) in self.lost_ranges
                if not is_told:
                    yield Violation("H5", f"offset {message.offset} where {expected} belongs")
            expected = message.offset + 1

    def _check_confirmed(
        self, sends: Sequence[Send], found: dict[int, Key | None]
    ) -> Iterable[Violation]:
        for send in sends:
            if send.outcome != "ok":
                continue
            for offset, key in enumerate(send.keys, send.base_offset):
                if self.is_lost(offset):
                    continue
                if offset not in found:
                    yield Violation("H1", f"{key} was confirmed at {offset}, where nothing is")
                elif found[offset] != key:
                    yield Violation("H1", f"{key} was confirmed at {offset}: {found[offset]}")


def _check_sent(sends: Sequence[Send], seen: Sequence[Seen]) -> Iterable[Violation]:
    """Judge what was read: sent by somebody, once, and its batch whole."""
    by_key = {key: send for send in sends for key in send.keys}
    places: dict[Key, int] = {}
    for message in seen:
        key = message.key
        send = None if key is None else by_key.get(key)
        if key is None or send is None:
            yield Violation("H2", f"offset {message.offset} holds {key}, which nobody sent")
        elif send.outcome == "fail":
            yield Violation("H2", f"{key} was refused and is at {message.offset}")
        elif key in places:
            yield Violation("H4", f"{key} is at {places[key]} and at {message.offset}")
        else:
            places[key] = message.offset
    for send in sends:
        offsets = [places[key] for key in send.keys if key in places]
        if offsets and offsets != list(range(offsets[0], offsets[0] + len(send.keys))):
            yield Violation("H4", f"the batch of {send.keys[0]} is at {offsets}")


def _check_order(sends: Sequence[Send]) -> Iterable[Violation]:
    """Judge confirmed sends by real time: one that ended before another began lies before it."""
    confirmed = [send for send in sends if send.outcome == "ok"]
    ended = sorted(confirmed, key=lambda send: send.returned)
    highest, at = -1, 0
    for send in sorted(confirmed, key=lambda send: send.invoked):
        while at < len(ended) and ended[at].returned < send.invoked:
            highest = max(highest, ended[at].base_offset)
            at += 1
        if send.base_offset <= highest:
            text = f"{send.keys[0]} at {send.base_offset} began after {highest} was confirmed"
            yield Violation("H6", text)
    yield from _check_client_order(confirmed)


def _check_client_order(confirmed: Sequence[Send]) -> Iterable[Violation]:
    """Judge the sends of one client, which a connection keeps in order.

    Not those that took several attempts: a refusal, maybe one that was never heard, lets later ones
    pass.
    """
    last: dict[int, Send] = {}
    for send in sorted(confirmed, key=lambda send: send.request):
        if send.attempts > 1:
            continue
        client = send.keys[0].client
        before = last.get(client)
        if before is not None and before.base_offset >= send.base_offset:
            text = f"{send.keys[0]} at {send.base_offset}, {before.keys[0]} at {before.base_offset}"
            yield Violation("H6", text)
        last[client] = send


@dataclass
class OffsetChecker:
    """Judges the stored offset of one consumer, who stores one after another."""

    confirmed: int | None = None
    asked: list[int] = field(default_factory=list)  # since the last that was confirmed
    known: dict[int, None] = field(default_factory=dict)  # all that were ever asked for

    def ask(self, offset: int) -> None:
        """Note that a store was sent."""
        self.asked.append(offset)
        self.known[offset] = None

    def confirm(self) -> None:
        """Note that the last one was answered."""
        self.confirmed = self.asked[-1]
        self.asked.clear()

    def rewind(self, stored: int | None) -> None:
        """Go on from what a power cut has left of a store that did not wait for a sync."""
        assert stored is None or stored in self.known, f"{stored} was never stored"
        self.confirmed = stored
        self.asked.clear()

    def check(self, stored: int | None, end: int) -> list[Violation]:
        """Judge what is stored now, beside the end of the partition."""
        violations = []
        if stored not in (self.confirmed, *self.asked):
            text = f"{stored} is stored, confirmed was {self.confirmed}, asked for {self.asked}"
            violations.append(Violation("H10", text))
        if stored is not None and stored >= end:
            violations.append(Violation("H10", f"{stored} is stored, the log ends at {end}"))
        return violations
