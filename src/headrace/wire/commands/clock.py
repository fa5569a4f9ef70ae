"""A clock that is right after a leap, confirmed by an operator: a command of our own (O8, CK1)."""

import msgspec

from headrace.wire.codec import NOTHING, U64, Record
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation


class AcceptedTime(msgspec.Struct, frozen=True):
    """The time that the node believed, and the one that it believes now, in microseconds."""

    before: int
    after: int


ACCEPTED_TIME = Record(AcceptedTime, before=U64, after=U64)
ACCEPT_TIME = Command(90_007, "accept time", Operation.ACCEPT_TIME, NOTHING, ACCEPTED_TIME)

COMMANDS = (ACCEPT_TIME,)
