"""Takes up the files of partitions after a start, and what a power cut may have taken of them.

```
added -> one of several replicas: opened at once, the others have what its journal lacks
      -> the only replica: opened once its log is replayed, and judged by that
power cut, class replicated -> short until its log names the lost range -> settled
```

Flow: recover.
"""

from collections.abc import Mapping

from headrace.shard.consensus.plane import Plane
from headrace.shard.owned.local import Local


class Opening:
    """The partitions that are not open yet, or not whole."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._is_alone = plane.config.replica_count == 1
        self.unopened: dict[int, Local] = {}  # until the journal is applied again
        self._opening: dict[int, Local] = {}  # until their files are taken up, or judged
        self._short: dict[int, Local] = {}  # those of which a power cut may have taken something
        self.unsettled: dict[int, Local] = {}  # until the log names what a power cut took

    def add(self, local: Local, lost_until: int | None) -> None:
        """Take up a partition; `lost_until` is its ceiling if a power cut took its tail (FM-7)."""
        group = local.target.group
        assert group not in self._opening, "a partition is taken up once"
        if lost_until is not None:
            local.lost_until = lost_until
            self._short[group] = local
        self._opening[group] = local
        if not self._is_alone:
            local.machine.open()  # What its own journal lacks, the others have.
            return
        self.unopened[group] = local
        if lost_until is not None:
            self.unsettled[group] = local

    def forget(self, group: int) -> None:
        """Forget a partition that is gone."""
        for each in (self.unopened, self._opening, self._short, self.unsettled):
            each.pop(group, None)

    @property
    def is_over(self) -> bool:
        """Whether all partitions are taken up, or known to be damaged."""
        opening = self._opening
        while opening:
            group, local = next(iter(opening.items()))
            if local.fence is None and not local.machine.is_open:
                return False
            del opening[group]  # It stays as it is: nobody looks at it again.
        return True

    @property
    def is_short(self) -> bool:
        """Whether the log of a partition does not say yet what a power cut may have taken."""
        while self._short:
            group, local = next(iter(self._short.items()))
            if local.fence is None and local.is_short:
                return True
            del self._short[group]
        return False

    def open_replayed(self) -> None:
        """Take up the files of partitions whose log is whole: nobody else has more of it."""
        if not self._plane.has_begun:
            return
        for local in self.unopened.values():
            assert local.replica.commit_min == local.replica.op, "the only replica has replayed all"
            local.machine.open(is_whole=True, lost_until=local.lost_until)
        self.unopened.clear()

    def settle_tail(self, group: int) -> None:
        """End the loss of a tail once the log names what was lost, and the files are judged."""
        local = self.unsettled.get(group)
        if local is not None and local.machine.is_open and not local.is_short:
            assert group not in self.unopened, "files are judged once the log is replayed"
            del self.unsettled[group]
            self._plane.settle_tail(group)

    def check(self, here: Mapping[int, Local]) -> None:
        """Assert that what is to be opened, or to be settled, is here."""
        for waiting in (self.unopened, self._opening, self._short, self.unsettled):
            for group, local in waiting.items():
                assert here.get(group) is local, "a partition that is gone is forgotten"
        alone = (self.unopened, self.unsettled)
        assert self._is_alone or not any(alone), "one of several replicas is opened at once"
        for local in self.unopened.values():
            assert not local.machine.is_open, "what is open is taken up"
        for local in self.unsettled.values():
            assert local.lost_until > 0 or not local.is_short, "only lost offsets make it short"
        assert self.unopened.keys() <= self._opening.keys(), "what is not open is being opened"
        assert not (self._plane.has_begun and self.unopened), "what is replayed is opened at once"
        self._check_done(here)

    def _check_done(self, here: Mapping[int, Local]) -> None:
        """Assert that whatever is not waited for any more is open and whole, or fenced."""
        is_settling = bool(self._plane.inbox.queue) or self._plane.inbox.has_ended
        for group, local in here.items():
            is_open = local.machine.is_open or local.fence is not None
            assert is_open or group in self._opening, "who is not open is waited for"
            is_whole = not local.is_short or local.fence is not None
            assert is_whole or group in self._short, "who is not whole is waited for"
            ceiling = self._plane.ceiling_of(group)
            assert local.lost_until <= ceiling, "what may be lost lies below the ceiling"
            is_lost = local.replica.state.is_tail_lost
            assert is_lost or group not in self.unsettled, "only a lost tail is settled"
            is_waited_for = group in self.unsettled or is_settling
            assert is_waited_for or not is_lost, "a lost tail is settled once its range is known"
