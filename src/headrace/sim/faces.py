"""The replica of a group, as checkers and the world see it."""

from headrace.vsr.replica import Replica
from headrace.vsr.state import Status


class Face:
    """One group on a running node."""

    __slots__ = ("_replica", "_state")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._state = replica.state

    @property
    def view(self) -> int:
        return self._state.view

    @property
    def log_view(self) -> int:
        return self._state.log_view

    @property
    def op(self) -> int:
        return self._state.log.head

    @property
    def whole_op(self) -> int:
        return self._state.log.whole_up_to(self._state.commit_min)

    @property
    def commit_min(self) -> int:
        return self._state.commit_min

    @property
    def commit_max(self) -> int:
        return self._state.commit_max

    @property
    def is_settled(self) -> bool:
        return self._state.status == Status.NORMAL

    @property
    def is_serving(self) -> bool:
        return self._replica.is_serving

    @property
    def is_voter(self) -> bool:
        state = self._state
        # An op that is known but damaged is neither a copy nor proof that there never was one.
        is_damaged = any(
            entry.body is None and not entry.is_never_held
            for op, entry in state.log.entries.items()
            if op > state.commit_max
        )
        return not (state.is_suspect or state.is_wiped or is_damaged)

    @property
    def is_wiped(self) -> bool:
        return self._state.is_wiped

    def table(self) -> bytes:
        """Return the client table."""
        return self._state.table.encode()
