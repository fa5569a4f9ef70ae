"""Whether what clients were told of one register fits one order of the calls.

A call takes effect at one moment between its invocation and its answer; one without an answer at
any later moment, or never. The search is that of Wing and Gong with the memory of Lowe: take any
call that may be the next, and never come twice to the same calls with the same value.

    invoked      answered
       |---store 5---|                     get 5 or get 7: the stores overlap, either may be last.
            |--store 7--|                  get 5, then get 7 does not fit: no store comes between.
                          |-get-| |-get-|

Invariants: a search that reaches its limit is an error, never a pass.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias


class SearchLimitError(Exception):
    """The calls were too many, or too many at once, to be judged."""


class Unknown(Enum):
    """A value that is there and that nobody was told of yet."""

    VALUE = 0


UNKNOWN: Final = Unknown.VALUE
Value: TypeAlias = int | Unknown | None  # none: nothing is stored, or the name is free


class Effect(Enum):
    """What a call was told of a register, or did to it."""

    SET = "set"  # whatever was there, this is there now
    MAKE = "make"  # nothing was there
    CLEAR = "clear"  # whatever was there, nothing is there now
    DROP = "drop"  # something was there
    RAISE = "raise"  # what was there stays if it is higher
    GET = "get"  # exactly this was there
    PRESENT = "present"  # something was there
    NEXT = "next"  # exactly the one before this was there
    BELOW = "below"  # nothing was there, or something lower


class Call(NamedTuple):
    """One call of a history; moments are numbers that rise with everything that happens."""

    invoked: int
    answered: int | None
    effect: Effect
    value: Value = None


def step(before: Value, call: Call) -> tuple[Value, ...]:
    """Return what may be there after a call; nothing if it cannot have been told that."""
    effect, value = call.effect, call.value
    after: Value = value
    is_possible = True
    match effect:
        case Effect.SET | Effect.CLEAR:
            pass
        case Effect.MAKE:
            is_possible = before is None
        case Effect.DROP:
            is_possible, after = before is not None, None
        case Effect.RAISE:
            after = _higher(before, value)
        case Effect.GET:
            is_possible = before == value or (before is UNKNOWN and value is not None)
        case Effect.PRESENT:
            is_possible, after = before is not None, before
        case Effect.NEXT:
            is_possible, after = before == _number(value) - 1, before
        case Effect.BELOW:
            is_possible = before is None or _number(before) < _number(value)
            after = before
    return (after,) if is_possible else ()


def _higher(before: Value, value: Value) -> Value:
    return value if before is None else max(_number(before), _number(value))


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def is_linearizable(calls: Sequence[Call], *, steps_max: int) -> bool:
    """Whether there is one order of the calls, from nothing on, in which all were told the truth.

    Raises:
        SearchLimitError: That could not be found out within so many steps.
    """
    ordered = sorted(calls, key=lambda call: call.invoked)
    needed = sum(1 << at for at, call in enumerate(ordered) if call.answered is not None)
    waiting: list[tuple[int, Value]] = [(0, None)]  # which calls are done, and what is there
    known: dict[tuple[int, Value], None] = {waiting[0]: None}
    steps = 0
    while waiting:
        done, value = waiting.pop()
        if done & needed == needed:
            return True
        for at in _next_calls(ordered, done):
            steps += 1
            for after in step(value, ordered[at]):
                reached = (done | 1 << at, after)
                if reached not in known:
                    known[reached] = None
                    waiting.append(reached)
        if steps > steps_max:
            raise SearchLimitError(f"{len(calls)} calls, {steps} steps")
    return False


def _next_calls(ordered: Sequence[Call], done: int) -> list[int]:
    """Return the calls that may be the next: those that began before any other one was over."""
    found: list[int] = []
    horizon: int | None = None
    first = (~done & (done + 1)).bit_length() - 1
    for at in range(first, len(ordered)):
        if done >> at & 1:
            continue
        call = ordered[at]
        if horizon is not None and call.invoked > horizon:
            break
        found.append(at)
        if call.answered is not None and (horizon is None or call.answered < horizon):
            horizon = call.answered
    return found
