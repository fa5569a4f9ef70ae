"""What failed when a partition was made or deleted, and when it is tried again (RC-10).

A record is of a partition and a cause, so that a delete that fails does not slow the making of its
successor. The pause is a second, doubles with each failure in a row up to a minute, and ends with a
success. The tenth failure is reported to the operator, then every one whose count is a power of 2.

Flow: apply.
"""

from collections.abc import Iterator
from enum import Enum

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding

PAUSE_TICKS = 100
PAUSE_TICKS_MAX = 60 * PAUSE_TICKS
REPORTED_FROM = 10


class Cause(Enum):
    """What was tried."""

    ADD = "add"
    DELETE = "delete"


class Failure(msgspec.Struct, frozen=True):
    """How often something failed in a row, when it is tried again, and what was said last."""

    count: int
    due: int
    text: str


class Failures:
    """The records of one shard; `findings` are for the log."""

    def __init__(self, findings: list[Finding], probes: Probes) -> None:
        self._findings = findings
        self._probes = probes
        self._records: dict[tuple[int, Cause], Failure] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[tuple[int, Cause, Failure]]:
        return iter([(*key, record) for key, record in self._records.items()])

    def find(self, group: int, cause: Cause) -> Failure | None:
        """Return the record of a partition and a cause, if it failed."""
        return self._records.get((group, cause))

    def is_backed_off(self, group: int, cause: Cause, now: int) -> bool:
        """Whether it failed and is not to be tried again yet."""
        record = self._records.get((group, cause))
        return record is not None and now < record.due

    def note(self, group: int, cause: Cause, now: int, text: str) -> None:
        """Record one more failure in a row."""
        before = self._records.get((group, cause))
        assert before is None or before.due <= now, "it is tried again after its pause"
        count = 1 if before is None else before.count + 1
        pause = pause_of(count)
        self._records[group, cause] = Failure(count, now + pause, text)
        self._probes.hit("partitions_reconcile_failures_total")
        if is_reported(count):
            self._probes.hit("reconcile.reported")
            self._findings.append(Finding(f"{cause.value} fails", name_of(group), count, text))

    def clear(self, group: int, cause: Cause) -> None:
        """Forget what failed: it was done, or is wanted no longer."""
        self._records.pop((group, cause), None)

    def check(self, now: int) -> None:
        """Assert that what failed is tried again within a minute."""
        for record in self._records.values():
            assert record.count > 0, "a record is of a failure"
            assert record.due <= now + pause_of(record.count), "a pause is that of its failures"
            assert record.due >= PAUSE_TICKS, "the first pause is a second"


def pause_of(count: int) -> int:
    """Return for how many ticks nothing is tried after so many failures in a row."""
    assert count > 0, "a pause follows a failure"
    pause = min(PAUSE_TICKS << min(count - 1, 16), PAUSE_TICKS_MAX)
    assert PAUSE_TICKS <= pause <= PAUSE_TICKS_MAX, "from a second to a minute"
    return pause


def is_reported(count: int) -> bool:
    """Whether that many failures in a row are reported to the operator."""
    assert count > 0, "what is reported has failed"
    is_power = count & (count - 1) == 0
    return count == REPORTED_FROM or (count > REPORTED_FROM and is_power)


def name_of(group: int) -> str:
    """Return what people call a partition."""
    stream, topic, partition = unpack_namespace(GroupId(group))
    return f"stream {stream} topic {topic} partition {partition}"
