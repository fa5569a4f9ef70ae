"""How far behind a group is, whatever happened to the partition meanwhile."""

import pytest

from headrace.cli.nouns.lag import make_lag
from headrace.wire.commands.topics import Partition


def partition(*, newest: int, count: int) -> Partition:
    return Partition(
        id=3,
        created_at=0,
        segments_count=1,
        current_offset=newest,
        size_bytes=0,
        messages_count=count,
    )


@pytest.mark.parametrize(
    ("newest", "count", "stored", "lag"),
    [
        (0, 0, None, 0),  # nothing was ever sent
        (9, 10, None, 10),  # nothing was ever read
        (9, 10, 9, 0),  # all was read
        (9, 10, 3, 6),
        (0, 1, 0, 0),
        (9, 4, None, 4),  # retention took the first six
        (9, 4, 1, 4),  # and some of them had not been read
        (9, 4, 7, 2),
        (9, 0, 5, 0),  # it took all of them
        (2, 3, 7, 3),  # purged: the offset is of an earlier history
    ],
)
def test_lag(newest: int, count: int, stored: int | None, lag: int) -> None:
    made = make_lag(partition(newest=newest, count=count), stored)
    assert made.lag == lag
    assert made.describe() == {
        "partition": 3,
        "current_offset": newest if newest or count else None,
        "stored_offset": stored,
        "lag": lag,
    }
