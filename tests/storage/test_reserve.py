"""What the journal keeps for ops that make room, and for control entries behind them (O2.10)."""

import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import RESERVE_PARTS, RESERVE_PARTS_OF_LOGINS
from headrace.base.prng import Prng
from headrace.ports.recovered import GroupCheckpoint, ViewState
from headrace.server.config.sections import MetadataJournalSection
from headrace.storage.config import StoreConfig
from headrace.storage.records import PREPARE_ENTRY_BYTES, record_bytes
from headrace.storage.ring import CONTROL_FILES_FREE, RESERVE_SHARE
from headrace.storage.store import Store
from headrace.vsr.sessions import CLIENTS_MAX
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import config, opened, prepare, started

SMALL = 16
OP_BYTES = record_bytes(PREPARE_ENTRY_BYTES + SMALL)


class Filler:
    """Stages ops of one group, as long as there is room for them."""

    def __init__(self, store: Store, disk: FakeDisk, prng: Prng) -> None:
        self.store, self.disk, self.prng = store, disk, prng
        self.op = 0

    def try_op(self, body_bytes: int, *, parts: int = 0) -> bool:
        if not self.store.has_room(body_bytes, reserve_parts=parts):
            return False
        self.op += 1
        self.store.stage_prepare(*prepare(METADATA_GROUP, self.op, bytes(body_bytes)))
        if self.prng.chance(1, 2):  # otherwise the next one joins the record
            self.settle()
        return True

    def settle(self) -> None:
        self.store.flush(sync=True)
        self.disk.settle(self.store)

    def fill(self) -> None:
        """Fill what others than ops that make room may fill, to the last byte."""
        for size in (7000, 2000, 300, SMALL):
            while self.try_op(size):
                pass
        self.settle()
        assert not self.store.has_room(SMALL)

    def use_reserve(self, parts: int = RESERVE_PARTS) -> int:
        """Use so many parts of the reserve to the end; give how many ops found a place."""
        count = 0
        while self.try_op(SMALL, parts=parts):
            assert not self.store.has_room(SMALL), "others leave it"
            count += 1
        self.settle()
        return count

    @property
    def waiting(self) -> list[int]:
        return self.store._journal.queued_sizes()


def make(seed: int) -> Filler:
    prng = Prng(seed)
    made = config(files=prng.between(4, 6), file_bytes=prng.choice((8192, 16384, 65536)))
    store, disk = started(made)
    filler = Filler(store, disk, prng)
    for _ in range(prng.below(30)):
        filler.try_op(prng.below(2000))
    disk.is_full = True  # In the first lap the journal cannot grow any more, later it can.
    return filler


@pytest.mark.parametrize("seed", range(40))
def test_ops_that_make_room_have_their_own(seed: int) -> None:
    filler = make(seed)
    store = filler.store
    ring = store._journal.ring
    filler.fill()
    count = filler.use_reserve(RESERVE_PARTS_OF_LOGINS)
    count += (made_room := filler.use_reserve())
    assert made_room * OP_BYTES >= ring.reserve_bytes // 4, "logins leave a part"
    assert count * OP_BYTES >= ring.reserve_bytes // 2
    assert not filler.waiting, "each has its place"
    assert ring._ready_count >= CONTROL_FILES_FREE, "the file for live entries is free"

    # Control entries find room behind them.
    for view in range(1, 9):
        store.stage_view(ViewState(METADATA_GROUP, view, view, 0, is_suspect=False))
        filler.settle()
    assert not filler.waiting
    assert store.synced == store.issued

    # All of it is there after a crash, and a checkpoint makes room for everybody.
    (group,) = opened(config_of(filler), filler.disk.files()).groups
    assert [entry.header.op for entry in group.entries] == list(range(1, filler.op + 1))
    filler.disk.is_full = False
    state = ViewState(METADATA_GROUP, 8, 8, filler.op, is_suspect=False)
    header = prepare(METADATA_GROUP, filler.op, bytes(SMALL))[0]
    store.begin_checkpoint([GroupCheckpoint(state, header, b"", ())], lambda *_: None)
    filler.disk.settle(store)
    for now in (100, 200):
        store.tick(now)
        filler.disk.settle(store)
    assert store.has_room(SMALL)


def test_the_reserve_of_the_metadata_journal_is_enough_for_every_client() -> None:
    """All of them may lose their connection while the disk is full."""
    reserve_bytes = MetadataJournalSection().file_bytes // RESERVE_SHARE
    assert reserve_bytes // RESERVE_PARTS >= CLIENTS_MAX * OP_BYTES


def config_of(filler: Filler) -> StoreConfig:
    ring = filler.store._journal.ring
    return config(files=ring.files_count, file_bytes=ring.file_bytes)
