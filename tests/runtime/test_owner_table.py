"""The replica owner table: one holder of a link, whoever else wants it."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.ids import NOBODY, ShardId
from headrace.runtime.owner_table import REPLICA_IDS, OwnerTable

SHARDS = 3
ROUNDS = 10_000
WAIT_SECONDS_MAX = 30.0

# Claims one slot against its siblings until it has had it so often, and says how often it had it,
# and how often somebody else had it at the same time.
RACER = """
import sys
from headrace.runtime.owner_table import OwnerTable
fd, shards, me, rounds = map(int, sys.argv[1:])
table = OwnerTable(fd, shards)
print("here", flush=True)
sys.stdin.read()
link = {"replica": 1, "shard": 2, "holder": me}
won = broken = 0
while won < rounds and not broken:
    if table.claim(**link):
        won += 1
        is_mine = all(table.holder_of(replica=1, shard=2) == me for _ in range(3))
        broken += not (is_mine and table.clear(**link))
table.clear(**link)  # so that nobody waits for one that has seen something broken
print(won, broken, flush=True)
"""

# Claims a slot once.
CLAIMER = """
import sys
from headrace.runtime.owner_table import OwnerTable
fd, shards, me = map(int, sys.argv[1:])
print(OwnerTable(fd, shards).claim(replica=1, shard=2, holder=me), flush=True)
"""


@pytest.fixture
def table() -> Iterator[OwnerTable]:
    made = OwnerTable.create(SHARDS)
    yield made
    made.close()


@contextmanager
def started(program: str, table: OwnerTable, *arguments: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process afresh that inherits the table."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, (table.fd, SHARDS, *arguments))],
        pass_fds=[table.fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def let_go(process: subprocess.Popen[str]) -> None:
    """End what a racer waits for."""
    assert process.stdin is not None
    process.stdin.close()


def shard(number: int) -> ShardId:
    return ShardId(number)


def test_a_link_has_nobody_at_first(table: OwnerTable) -> None:
    """SH-28: one slot for each replica id and shard."""
    for replica in range(REPLICA_IDS):
        for number in range(SHARDS):
            assert table.holder_of(replica=replica, shard=shard(number)) == NOBODY


def test_the_first_claim_wins(table: OwnerTable) -> None:
    """SH-28: a claim by its holder succeeds again, that of another is refused."""
    assert table.claim(replica=5, shard=shard(2), holder=shard(1))
    assert table.claim(replica=5, shard=shard(2), holder=shard(1))
    assert not table.claim(replica=5, shard=shard(2), holder=shard(0))
    assert table.holder_of(replica=5, shard=shard(2)) == 1


def test_only_the_holder_clears(table: OwnerTable) -> None:
    """SH-28."""
    assert table.claim(replica=0, shard=shard(0), holder=shard(1))
    assert not table.clear(replica=0, shard=shard(0), holder=shard(2))
    assert table.holder_of(replica=0, shard=shard(0)) == 1
    assert table.clear(replica=0, shard=shard(0), holder=shard(1))
    assert table.holder_of(replica=0, shard=shard(0)) == NOBODY
    assert not table.clear(replica=0, shard=shard(0), holder=shard(1))
    assert table.claim(replica=0, shard=shard(0), holder=shard(2))


STEPS = st.tuples(
    st.sampled_from(["claim", "clear"]),
    st.sampled_from([0, 1, REPLICA_IDS - 1]),
    st.integers(0, SHARDS - 1),
    st.integers(0, SHARDS - 1),
)


@given(st.lists(STEPS, max_size=30))
def test_slots_do_not_touch_each_other(steps: list[tuple[str, int, int, int]]) -> None:
    """SH-28: the table does what a dictionary of links does."""
    table = OwnerTable.create(SHARDS)
    held: dict[tuple[int, int], int] = {}
    for verb, replica, of, holder in steps:
        link = (replica, of)
        if verb == "claim":
            is_granted = held.setdefault(link, holder) == holder
            told = table.claim(replica=replica, shard=shard(of), holder=shard(holder))
        else:
            is_granted = held.get(link) == holder
            if is_granted:
                del held[link]
            told = table.clear(replica=replica, shard=shard(of), holder=shard(holder))
        assert told == is_granted
    for replica in (0, 1, REPLICA_IDS - 1):
        for of in range(SHARDS):
            expected = held.get((replica, of), NOBODY)
            assert table.holder_of(replica=replica, shard=shard(of)) == expected
    table.close()


@pytest.mark.parametrize(("replica", "of"), [(-1, 0), (REPLICA_IDS, 0), (0, -1), (0, SHARDS)])
def test_a_link_that_cannot_be_is_a_fault(table: OwnerTable, replica: int, of: int) -> None:
    """SH-28: it would be the slot of another."""
    with pytest.raises(AssertionError):
        table.holder_of(replica=replica, shard=shard(of))


@pytest.mark.parametrize("holder", [-1, SHARDS, NOBODY])
def test_a_holder_that_cannot_be_is_a_fault(table: OwnerTable, holder: int) -> None:
    """SH-28."""
    with pytest.raises(AssertionError):
        table.claim(replica=0, shard=shard(0), holder=shard(holder))
    with pytest.raises(AssertionError):
        table.clear(replica=0, shard=shard(0), holder=shard(holder))
    assert table.holder_of(replica=0, shard=shard(0)) == NOBODY


def test_the_table_cannot_shrink(table: OwnerTable) -> None:
    with pytest.raises(PermissionError):
        os.truncate(table.fd, 0)


def test_a_claim_waits_for_one_that_has_begun(table: OwnerTable) -> None:
    """SH-28: between looking at a slot and setting it no other process comes."""
    at = (1 * SHARDS + 2) * 2
    fcntl.lockf(table.fd, fcntl.LOCK_EX, 2, at)
    with started(CLAIMER, table, 1) as process:
        wait_until_blocked(process.pid)
        table._slots[at // 2] = 0
        fcntl.lockf(table.fd, fcntl.LOCK_UN, 2, at)
        assert read_line(process) == "False\n"
    assert table.holder_of(replica=1, shard=shard(2)) == 0


def wait_until_blocked(pid: int) -> None:
    """Wait until a process waits for a lock on a file; fail if it ends instead."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not any(
        line.split()[1] == "->" and f" {pid} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    ):
        assert Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_processes_race_for_one_link(table: OwnerTable) -> None:
    """SH-28: each claim that is granted has the link alone, until it is cleared."""
    with ExitStack() as stack:
        racers = [
            stack.enter_context(started(RACER, table, number, ROUNDS)) for number in range(SHARDS)
        ]
        assert [read_line(racer) for racer in racers] == ["here\n"] * SHARDS
        for racer in racers:
            let_go(racer)
        told = [tuple(map(int, read_line(racer).split())) for racer in racers]
    assert told == [(ROUNDS, 0)] * SHARDS
    assert table.holder_of(replica=1, shard=shard(2)) == NOBODY


@pytest.mark.slow
def test_a_killed_process_leaves_no_lock(table: OwnerTable) -> None:
    """SH-28: the slots of the dead stay as they are, and the others go on."""
    with started(RACER, table, 0, 1 << 40) as racer:
        assert read_line(racer) == "here\n"
        let_go(racer)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while table.holder_of(replica=1, shard=shard(2)) == NOBODY:
            assert time.monotonic() < deadline
        racer.kill()
        racer.wait()
    left = table.holder_of(replica=1, shard=shard(2))
    assert left in (0, NOBODY)
    assert table.claim(replica=1, shard=shard(2), holder=shard(1)) == (left == NOBODY)
