"""The numbers of a quarantine that all shards of a node share."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.runtime.files.quarantine import REASON_NAME, Quarantine

SHARDS = 4
CASES = 8


def test_shards_that_keep_evidence_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    """FM-11: none fails because a sibling was quicker, and none writes into its case."""
    folder = tmp_path / "quarantine"

    def keep(shard: int) -> None:
        own = Quarantine(folder)  # as in a process of its own: they share no lock
        for number in range(CASES):
            name = f"{shard}-{number}"
            own.copy(tmp_path / name, 0, [name.encode()], "for a test")

    with ThreadPoolExecutor(SHARDS) as pool:
        list(pool.map(keep, range(SHARDS)))
    cases = sorted(int(each.name) for each in folder.iterdir())
    assert cases == list(range(1, SHARDS * CASES + 1))
    kept = [
        sorted(each.name for each in (folder / str(case)).iterdir() if each.name != REASON_NAME)
        for case in cases
    ]
    names = [f"{shard}-{number}.0" for shard in range(SHARDS) for number in range(CASES)]
    assert sorted(kept) == sorted([name] for name in names)
