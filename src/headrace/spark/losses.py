"""Missing messages, exactly, and what to do about them (D12)."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.spark.offsets import Key

# What to do when messages are missing: raise an error, continue, or report it in a row.
OnLoss: TypeAlias = Literal["fail", "skip", "report"]

_log = logging.getLogger("headrace.spark")


@dataclass(frozen=True)
class Loss:
    """The offsets from `first` up to, not including, `end` are gone.

    Without an end their number is unknown: their log does not exist any more.
    """

    key: Key
    first: int
    end: int | None
    why: str

    def __str__(self) -> str:
        if self.end is None:
            return f"{self.key}: the offsets from {self.first} on are gone: {self.why}"
        count = self.end - self.first
        return (
            f"{self.key}: the {count} offsets {self.first} to {self.end - 1} are gone: {self.why}"
        )


class DataLossError(Exception):
    """Messages to be read are no longer there."""


def meet(losses: Iterable[Loss], on_loss: OnLoss) -> None:
    """Handle losses as the user wants: raise one error for all, or log each.

    With `report` they become rows of their slice; they are logged too.

    Raises:
        DataLossError: There is a loss, and the user wants an error.
    """
    sentences = [str(loss) for loss in losses]
    if not sentences:
        return
    if on_loss == "fail":
        raise DataLossError(
            "\n".join(sentences)
            + "\nTo go on with what is there, set the option onDataLoss to skip (the gap is only"
            " logged) or report (the gap becomes a row), or use a new checkpoint folder."
        )
    for sentence in sentences:
        _log.warning("%s", sentence)
