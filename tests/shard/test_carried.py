"""Ops that a checkpoint carries along: read again after a fault, and given up in the end (P7)."""

from itertools import count

from headrace.shard.consensus.carried import CarriedOps
from headrace.storage.store import Store
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import config, prepare, started


def carrying() -> tuple[Store, FakeDisk, CarriedOps]:
    """Return a store with two ops, and what is to carry them."""
    store, disk = started(config())
    for op in (1, 2):
        store.stage_prepare(*prepare(1, op))
        store.flush(sync=True)
        disk.settle(store)
    return store, disk, CarriedOps(store, count(1).__next__)


def deliver(store: Store, disk: FakeDisk, carried: CarriedOps) -> int:
    """Let the disk answer once; return how many ops were read, damaged or not."""
    disk.settle(store)
    done = store.take_reads()
    assert all(carried.on_read(*each) for each in done)
    return len(done)


def test_a_read_that_failed_is_tried_again() -> None:
    store, disk, carried = carrying()
    header, body = prepare(1, 2)
    at = disk.cached["journal.0"].rindex(body) + len(body) - 1
    disk.cached["journal.0"][at] ^= 1
    carried.want(1, above=0, until=2)
    carried.read_on()
    assert deliver(store, disk, carried) == 2
    disk.cached["journal.0"][at] ^= 1
    assert deliver(store, disk, carried) == 1
    assert carried.is_complete
    assert carried.get(1, 2) == (header, body)


def test_what_cannot_be_read_is_given_up_and_what_is_not_held_is_told() -> None:
    store, disk, carried = carrying()
    _, body = prepare(1, 2)
    disk.cached["journal.0"][disk.cached["journal.0"].rindex(body) + len(body) - 1] ^= 1
    carried.want(1, above=1, until=2)
    carried.want(2, above=0, until=1)
    carried.read_on()
    assert list(carried.missing) == [2]
    tries = 0
    while not carried.is_complete:
        tries += deliver(store, disk, carried)
    assert tries == 3
    assert carried.holds(1, 2)
    assert carried.get(1, 2) is None
    carried.clear()
    assert not carried.missing
