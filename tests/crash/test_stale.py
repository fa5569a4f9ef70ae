"""DK16 on a real node: whole folders and single files from older copies.

About 60 s of the storage share.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.crash.ages import Age, make_ages
from tests.crash.stale import KINDS, NEWER, Archive

pytestmark = pytest.mark.slow

# What comes of a kind, where its files do not decide that.
REFUSED = ("superblock", "metadata superblock", "metadata folder", "shards folder")
INTACT = (
    "checkpoint",
    "metadata checkpoint",
    "marker",
    "metadata marker",
    "layout",
    "index",
)


@pytest.fixture(scope="module")
def ages() -> Iterator[list[Age]]:
    with TemporaryDirectory(prefix="headrace-stale-") as folder:
        yield make_ages(Path(folder))


@pytest.fixture
def archive(ages: list[Age]) -> Iterator[Archive]:
    with TemporaryDirectory(prefix="headrace-stale-") as folder:
        yield Archive(ages, Path(folder))


@pytest.mark.parametrize("number", [0, 1])
def test_a_whole_folder_from_an_older_copy_is_taken_as_it_is(archive: Archive, number: int) -> None:
    """After a clean stop, and after a kill."""
    archive.restore(number)


@pytest.mark.parametrize("kind", KINDS)
def test_one_thing_of_another_moment_costs_nothing_silently(archive: Archive, kind: str) -> None:
    case = archive.mix(kind, random.Random(kind))
    if kind in REFUSED:
        assert case.outcome == "refused", case
    elif kind in INTACT:
        assert case.outcome == "intact", case
    elif kind == NEWER:
        assert case.outcome == "error", case
