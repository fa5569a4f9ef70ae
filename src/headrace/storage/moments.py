"""Tells stores of one moment from stores of two, by the node's last start that each knows (DK16).

Every start has a number, and each store keeps that of the last one in its superblock. No group
lives, and so no store is written, before all stores of the node know of the start. A store that
knows an earlier start than one that was written since is therefore from an older copy.
"""

from collections.abc import Mapping

import msgspec


class Moment(msgspec.Struct, frozen=True):
    """Which start of the node a store knows as the last, and whether it was written since."""

    start: int
    is_begun: bool


def find_older(moments: Mapping[str, Moment]) -> tuple[str, str] | None:
    """Give a store that is of an earlier moment than another, and a sentence about it."""
    newest = max(moments, key=lambda name: moments[name].start)
    for name, moment in moments.items():
        if moment.start < moments[newest].start and moments[newest].is_begun:
            return name, (
                f"{name} is as of start {moment.start} of the node, and {newest} as of start"
                f" {moments[newest].start}: they are not of one moment; restore the whole data"
                " folder from one copy"
            )
    return None
