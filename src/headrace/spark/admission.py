"""Decides how far the next micro-batch goes: a pure function of start, end and limit.

Flow:       plan.
Invariants: no partition moves backwards or beyond its end; a limit of n rows admits at most n, and
            at least one if there is one: a batch without progress would be repeated forever.
"""

from headrace.spark.offsets import Key, Position, Positions


def admit(
    start: Positions, begin: Positions, latest: Positions, *, rows_max: int | None = None
) -> dict[Key, Position]:
    """Return how far the next batch goes; without a limit, to the end.

    `begin` is `start` plus the positions where new partitions begin; an empty new partition is left
    out. With a limit each partition gets a share in proportion to its waiting messages. A partition
    whose log differs from the one at the start counts from its first offset.
    """
    bases = {key: _base(begin[key], latest[key]) for key in sorted(latest)}
    # A lagging server may end before the start: then nothing waits.
    waiting = {key: max(latest[key].next - base.next, 0) for key, base in bases.items()}
    if rows_max is not None and sum(waiting.values()) > rows_max:
        waiting = _share(waiting, rows_max)
    admitted = dict(start)
    for key, count in waiting.items():
        if count:
            admitted[key] = bases[key]._replace(next=bases[key].next + count)
    return admitted


def clip(latest: Positions, target: Positions) -> dict[Key, Position]:
    """Return the latest positions, limited to what existed when a target was set."""
    return {
        key: min(place, target[key]) if place.is_same_log(target[key]) else target[key]
        for key, place in latest.items()
        if key in target
    }


def _base(begin: Position, latest: Position) -> Position:
    return begin if begin.is_same_log(latest) else latest._replace(next=0)


def _share(waiting: dict[Key, int], rows_max: int) -> dict[Key, int]:
    """Divide the rows in proportion; the largest remainders get what rounding left."""
    total = sum(waiting.values())
    shares = {key: count * rows_max // total for key, count in waiting.items()}
    left = rows_max - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda key: (-(waiting[key] * rows_max % total), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return shares
