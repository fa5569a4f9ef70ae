"""The histories of all registers: what was asked of each, and what was answered, to be judged.

A register is a stored offset or a name. Some of what happens concerns many of them: a purge clears
every offset of a topic. A history can end before the run does, where no rule says what follows.

H10  stored offsets are linearizable        H12  names are linearizable
"""

from typing import NamedTuple, TypeAlias

from headrace.sim.nodes.linearizable import Call, Effect, SearchLimitError, is_linearizable
from headrace.sim.violation import SimViolationError

Key: TypeAlias = tuple[str, ...]

OFFSET = "offset"
STEPS_MAX = 200_000

_CHANGES = (Effect.SET, Effect.MAKE, Effect.CLEAR, Effect.DROP)


class _Wide(NamedTuple):
    prefix: Key
    call: Call


class Registers:
    """All registers of a run; moments are counted here."""

    def __init__(self) -> None:
        self._moment = 0
        self._calls: dict[Key, list[Call]] = {}
        self._wide: list[_Wide] = []
        self._ends: dict[Key, int] = {}

    def moment(self) -> int:
        """Return the number of a new moment."""
        self._moment += 1
        return self._moment

    def add(self, key: Key, call: Call) -> None:
        """Take a call of one register."""
        self._calls.setdefault(key, []).append(call)

    def add_all(self, prefix: Key, call: Call) -> None:
        """Take a call of all registers whose key begins so, also of those that are yet unknown."""
        self._wide.append(_Wide(prefix, call))

    def end(self, prefix: Key) -> None:
        """Judge registers whose key begins so by what was before this moment alone."""
        self._ends.setdefault(prefix, self.moment())

    def calls_of(self, key: Key) -> list[Call]:
        """Return the history of a register, up to its end."""
        wide = [each.call for each in self._wide if _begins(key, each.prefix)]
        ends = [moment for prefix, moment in self._ends.items() if _begins(key, prefix)]
        return _until([*self._calls.get(key, ()), *wide], min(ends, default=self._moment + 1))

    def meetings(self) -> int:
        """Count the reads that were under way together with a change of what they read."""
        count = 0
        for key in self._calls:
            calls = self.calls_of(key)
            changes = [call for call in calls if call.effect in _CHANGES]
            reads = [call for call in calls if call.effect == Effect.GET]
            count += sum(any(_overlap(read, change) for change in changes) for read in reads)
        return count

    def check(self) -> int:
        """Check every history; return how many calls were judged.

        Raises:
            SimViolationError: One fits no order, or it could not be found out whether it does.
        """
        count = 0
        for key in self._calls:
            calls = self.calls_of(key)
            count += len(calls)
            code = "H10" if key[0] == OFFSET else "H12"
            try:
                is_fine = is_linearizable(calls, steps_max=STEPS_MAX)
            except SearchLimitError as error:
                raise SimViolationError(code, why=f"not judged: {error}", register=key) from None
            if not is_fine:
                raise SimViolationError(code, why="not linearizable", register=key, **_show(calls))
        return count


def _begins(key: Key, prefix: Key) -> bool:
    return key[: len(prefix)] == prefix


def _overlap(one: Call, other: Call) -> bool:
    return (one.answered is None or other.invoked < one.answered) and (
        other.answered is None or one.invoked < other.answered
    )


def _until(calls: list[Call], end: int) -> list[Call]:
    """Leave out what began later; what was answered later may have happened by then or not."""
    return [
        call if call.answered is None or call.answered < end else call._replace(answered=None)
        for call in calls
        if call.invoked < end
    ]


def _show(calls: list[Call]) -> dict[str, object]:
    """Return the shortest beginning of a history that cannot be, to be read by people."""
    for end in sorted(call.answered for call in calls if call.answered is not None):
        short = _until(calls, end + 1)
        if not is_linearizable(short, steps_max=STEPS_MAX):
            told = [
                f"{call.invoked}-{call.answered or ''} {call.effect.value} {call.value}"
                for call in sorted(short, key=lambda call: call.invoked)
            ]
            return {"calls": told[-12:], "of": len(told)}
    return {}
