"""Detects stores that were copied at different moments, by the last start each one knows (DK16).

Every start of the node has a number, and each store keeps the last one in its superblock. No group
runs, and so no store is written, before all stores of the node know the start. A store that knows
an earlier start than one that was written since is therefore from an older copy.
"""

from collections.abc import Mapping

import msgspec


class Moment(msgspec.Struct, frozen=True):
    """The last start of the node that a store knows, and whether it was written since."""

    start: int
    is_begun: bool


def find_older(moments: Mapping[str, Moment]) -> tuple[str, str] | None:
    """Return a store that is older than another, with a sentence about it; or None."""
    newest = max(moments, key=lambda name: moments[name].start)
    for name, moment in moments.items():
        if moment.start < moments[newest].start and moments[newest].is_begun:
            return name, (
                f"{name} is as of start {moment.start} of the node, and {newest} as of start"
                f" {moments[newest].start}: they are not of one moment; restore the whole data"
                " folder from one copy"
            )
    return None
