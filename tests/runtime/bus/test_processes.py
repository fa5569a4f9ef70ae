"""Members as real processes: nothing is lost, nothing waits, an end by force is seen."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.base.limits import KIB
from headrace.ports.bus import BusRefused, DropReason, MemberLost
from headrace.runtime.bus.ends import make_bus
from tests.runtime.bus.members import WAIT_SECONDS, Member, gathered, number_of, request
from tests.runtime.bus.mixed import body_of, is_whole

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow  # Each starts a process.


@contextmanager
def child(*role: str, **options: Any) -> Iterator[tuple[Member, subprocess.Popen[bytes]]]:
    """Start member 1 as a process; yield member 0 and the process."""
    made = make_bus(2, **options)
    descriptors = made.descriptors(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.bus.child", *role],
        pass_fds=descriptors,
        env={**os.environ, "BUS_ENDS": made.ends(1).to_text()},
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    made.release(1)
    member = Member(made.keep(0))
    try:
        yield member, process
    finally:
        member.close()
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)
        made.close()


def test_ten_thousand_frames_both_ways() -> None:
    """SH-11, SH-17: mixed sizes, none lost, none out of order."""
    count = 10_000
    with child("exchange", str(count)) as (member, process):
        sent = got = 0
        deadline = time.monotonic() + 3 * WAIT_SECONDS
        while got < count or sent < count or member.bus.waiting(1) != (0, 0):
            while sent < count and member.send(1, *gathered(sent + 1, body_of(sent + 1))) is None:
                sent += 1
            member.turn(0.001)
            for sender, frame in member.frames:
                got += 1
                assert (sender, number_of(frame)) == (1, got)
                assert is_whole(frame)
            member.events.clear()
            assert time.monotonic() < deadline
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"10000\n"


def test_a_member_that_does_not_read_costs_drops_and_no_time() -> None:
    """SH-17, SH-18: what was accepted arrives whole when it reads again."""
    with child("sleep", inbox_capacity=64) as (member, process):
        accepted: list[int] = []
        dropped: list[BusRefused] = []
        longest = 0.0
        for number in range(1, 2001):
            before = time.monotonic()
            answer = member.send(1, *gathered(number, bytes([number % 256]) * 16 * KIB))
            member.bus.flush()
            longest = max(longest, time.monotonic() - before)
            if answer is None:
                accepted.append(number)
            else:
                dropped.append(answer)
        assert longest < 1
        assert len(accepted) >= 64
        assert {answer.reason for answer in dropped} == {DropReason.FULL}
        assert member.bus.waiting(1) == (64, 0)
        assert process.stdin is not None
        process.stdin.write(b"now\n")
        process.stdin.flush()
        member.until(lambda: len(member.frames) == len(accepted))
        assert [number_of(frame) for _, frame in member.frames] == accepted
        for number, (_, frame) in zip(accepted, member.frames, strict=True):
            assert frame[256:] == bytes([number % 256]) * 16 * KIB


def test_an_end_by_force_is_seen_and_refused() -> None:
    """SH-17, PR1: also with frames on their way, in both directions."""
    with child("echo") as (member, process):
        member.send(1, *gathered(1))
        member.until(lambda: len(member.frames) == 1)
        member.events.clear()
        for ticket in range(1, 101):
            member.send(1, *request(ticket, bytes(16 * KIB)))
        member.turn()
        os.kill(process.pid, signal.SIGKILL)
        member.until(lambda: any(isinstance(event, MemberLost) for event in member.events))
        assert [event.member for event in member.events if isinstance(event, MemberLost)] == [1]
        answer = member.send(1, *request(101))
        assert answer is not None
        assert answer.reason == DropReason.DISCONNECTED
        assert member.bus.places_taken(1) == 0
        tickets = [number_of(frame) for _, frame in member.frames]
        assert tickets == [*range(1, len(tickets) + 1)]
        assert member.loop.watched() == 0


def test_a_member_that_stands_still_is_not_gone() -> None:
    """SH-17: its lanes take frames until they are full, and it answers when it goes on."""
    with child("echo", inbox_capacity=16) as (member, process):
        member.send(1, *gathered(1))
        member.until(lambda: len(member.frames) == 1)
        os.kill(process.pid, signal.SIGSTOP)
        accepted = []
        for number in range(2, 1000):
            if member.send(1, *gathered(number, bytes(32 * KIB))) is None:
                accepted.append(number)
            member.bus.flush()
        assert len(accepted) < 998
        os.kill(process.pid, signal.SIGCONT)
        member.until(lambda: len(member.frames) == 1 + len(accepted))
        assert [number_of(frame) for _, frame in member.frames] == [1, *accepted]
