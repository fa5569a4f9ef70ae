"""How far the next micro-batch may go: a pure function of where it starts, what is there, a limit.

Flow:       plan.
Invariants: no partition ever goes back, and none beyond what is there; a limit of n rows admits at
            most n, and at least one where there is one: a batch without progress would never end.
"""

from headrace.spark.offsets import Key, Position, Positions


def admit(
    start: Positions, begin: Positions, latest: Positions, *, rows_max: int | None = None
) -> dict[Key, Position]:
    """Give how far the next batch goes; without a limit, to the end.

    `begin` is `start` with the places where new partitions begin; one that has nothing yet stays
    out. With a limit each partition gets a share in proportion to what it has waiting. A partition
    whose log is another than at the start counts from its first offset.
    """
    bases = {key: _base(begin[key], latest[key]) for key in sorted(latest)}
    # A server that lags behind may end before the start: then nothing waits.
    waiting = {key: max(latest[key].next - base.next, 0) for key, base in bases.items()}
    if rows_max is not None and sum(waiting.values()) > rows_max:
        waiting = _share(waiting, rows_max)
    admitted = dict(start)
    for key, count in waiting.items():
        if count:
            admitted[key] = bases[key]._replace(next=bases[key].next + count)
    return admitted


def clip(latest: Positions, target: Positions) -> dict[Key, Position]:
    """Give the latest positions as they were when a target was taken: nothing newer than it."""
    return {
        key: min(place, target[key]) if place.is_same_log(target[key]) else target[key]
        for key, place in latest.items()
        if key in target
    }


def _base(begin: Position, latest: Position) -> Position:
    return begin if begin.is_same_log(latest) else latest._replace(next=0)


def _share(waiting: dict[Key, int], rows_max: int) -> dict[Key, int]:
    """Deal the rows out in proportion; the largest remainders get what rounding left."""
    total = sum(waiting.values())
    shares = {key: count * rows_max // total for key, count in waiting.items()}
    left = rows_max - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda key: (-(waiting[key] * rows_max % total), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return shares
