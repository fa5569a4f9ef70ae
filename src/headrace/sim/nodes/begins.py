"""Judges which history a poll served, and where it began (P2, P6).

A poll serves one history, none that was over when it was asked for, and begins with the first
message that it asks for.

An index that is wrong leads to a right batch of the right file that is not the one wanted. Only
what retention or a lost range took may be passed over.
"""

from collections.abc import Mapping

from headrace.sim.nodes.history import History, Reign
from headrace.sim.nodes.model import Batch
from headrace.sim.violation import SimViolationError
from headrace.wire.identifiers import First, FromOffset, FromTimestamp, Strategy


def check_one_history(served: list[tuple[History, Batch]], facts: Mapping[str, object]) -> None:
    """Check that all batches of a poll are of one history.

    Raises:
        SimViolationError: They are not.
    """
    if len({(history.key, batch.epoch): None for history, batch in served}) != 1:
        raise SimViolationError("P2", why="two histories in one poll", **facts)


def check_floor(history: History, floor: Reign, batch: Batch, facts: Mapping[str, object]) -> None:
    """Check that a batch is of no older history than its node had when it was asked.

    Raises:
        SimViolationError: It is.
    """
    if (history.key.origin, batch.epoch) < floor:
        raise SimViolationError(
            "P6", why="of a history that was over", epoch=batch.epoch, floor=floor, **facts
        )


def check_begin(history: History, strategy: Strategy, batch: Batch, first: int) -> None:
    """Check that a poll which began with an offset, of that batch, passed nothing over.

    Raises:
        SimViolationError: It did.
    """
    model = history.model
    assert model is not None
    if model.epoch != batch.epoch or history.by_offset.get((batch.epoch, first)) is not batch:
        return  # Of a history that is over, or was lost: what it held then is not known.
    match strategy:
        case First():
            is_right = not _passed(history, 0, first)
        case FromOffset(offset=offset):
            is_right = first >= offset and not _passed(history, offset, first)
        case FromTimestamp(timestamp=timestamp):
            is_right = (
                batch.stamp >= timestamp
                and batch.base_offset == first
                and not any(each.stamp >= timestamp for each in _passed(history, 0, first))
            )
        case _:
            return  # The end and the stored offset may move while the poll is on its way.
    if not is_right:
        raise SimViolationError(
            "P2", why="began elsewhere", group=history.key, strategy=strategy, first=first
        )


def _passed(history: History, start: int, end: int) -> list[Batch]:
    """Return the batches with messages between two offsets that are still there."""
    assert history.model is not None
    return [
        each
        for each in history.model.batches()
        if max(each.base_offset, start) < min(each.end_offset, end)
    ]
