"""The result of the doctor: a verdict for every file of a data folder, and one for the whole."""

from enum import StrEnum
from typing import Any

import msgspec


class Verdict(StrEnum):
    """The verdict on one file, from good to bad."""

    FINE = "fine"
    REPAIRED = "repaired at start"  # the next start repairs it without loss
    NOTICE = "look at it"  # nothing is lost, but a person should know
    UNKNOWN = "unknown file"
    DAMAGED = "damaged"


class Lost(msgspec.Struct, frozen=True):
    """Offsets of one partition that cannot be read any more, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"offset {self.first}"
        return f"offsets {self.first} to {self.last}"


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its path below the folder, what it is, and the findings."""

    path: str
    what: str
    verdict: Verdict
    text: str
    size_bytes: int | None = None  # none if there is no such file
    position: int | None = None
    partition: str = ""
    lost: tuple[Lost, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole data folder."""

    folder: str
    free_bytes: int
    files: tuple[FileReport, ...]

    @property
    def is_damaged(self) -> bool:
        """Whether the next start would refuse, or data is lost."""
        return any(each.verdict == Verdict.DAMAGED for each in self.files)

    @property
    def summary(self) -> str:
        """All verdicts counted, in one sentence."""
        counts = [
            f"{count} {verdict.value}"
            for verdict in Verdict
            if (count := sum(each.verdict == verdict for each in self.files))
        ]
        return f"{self.folder}: {len(self.files)} files: {', '.join(counts) or 'nothing'}"

    def plain(self) -> dict[str, Any]:
        """Return the report as plain values."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return {"is_damaged": self.is_damaged, **values}


def worst(one: Verdict, other: Verdict) -> Verdict:
    """Return the worse of two verdicts."""
    order = list(Verdict)
    return max(one, other, key=order.index)
