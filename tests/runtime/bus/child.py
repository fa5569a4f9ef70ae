"""A member in a process of its own: `python -m tests.runtime.bus.child role`, ends in BUS_ENDS."""

import os
import sys
import time

from headrace.ports.bus import MemberLost
from headrace.runtime.bus.ends import read_ends
from tests.runtime.bus.members import WAIT_SECONDS, Member, gathered, number_of
from tests.runtime.bus.mixed import body_of, is_whole


def exchange(member: Member, count: int) -> None:
    """Send so many frames and take as many, all of them whole and in order; then wait."""
    sent = 0
    got = 0
    deadline = time.monotonic() + 3 * WAIT_SECONDS
    while got < count or sent < count or member.bus.waiting(0) != (0, 0):
        while sent < count and member.send(0, *gathered(sent + 1, body_of(sent + 1))) is None:
            sent += 1
        member.turn(0.001)
        for sender, frame in member.frames:
            got += 1
            assert sender == 0
            assert number_of(frame) == got
            assert is_whole(frame)
        member.events.clear()
        assert time.monotonic() < deadline
    sys.stdout.write(f"{got}\n")


def echo(member: Member) -> None:
    """Send back every frame as it came, until the other end closes."""
    waiting: list[bytes] = []
    while not any(isinstance(event, MemberLost) for event in member.events):
        waiting += [bytes(frame) for _, frame in member.frames]
        member.events.clear()
        while waiting and member.send(0, waiting[0]) is None:
            waiting.pop(0)
        member.turn(0.1)


def main() -> None:
    """Play a role."""
    role = sys.argv[1]
    member = Member(read_ends(os.environ["BUS_ENDS"]))
    if role == "exchange":
        exchange(member, int(sys.argv[2]))
    elif role == "echo":
        echo(member)
    elif role == "sleep":  # Reads nothing until it is told.
        sys.stdin.readline()
        echo(member)
    member.close()


if __name__ == "__main__":
    main()
