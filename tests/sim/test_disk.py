"""The simulated disk."""

import msgspec

from headrace.base.prng import Prng
from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    DiskEvent,
    FileReplaced,
    JournalAllocated,
    JournalRead,
    ReadJournal,
    RemoveFile,
    ReplaceFile,
    Synced,
    WriteBlock,
    WriteJournal,
    Written,
)
from headrace.sim.agenda import Agenda
from headrace.sim.disk import SYNC_LATER, TEMPORARY, Disk, DiskOptions

ALWAYS = 1 << 14
SIZE = 8_192


class Bench:
    """A disk with one journal file, and its answers."""

    def __init__(self, seed: int = 1, **options: int) -> None:
        self.agenda = Agenda()
        self.answers: list[DiskEvent] = []
        self.failures = 0
        self.disk = Disk(
            msgspec.structs.replace(DiskOptions(), **options),
            Prng(seed),
            self.agenda,
            self.answers.append,
            self._fail,
        )
        self.disk.format({"journal-0": bytes(SIZE), "block": b"o" * 2_048})

    def _fail(self) -> None:
        self.failures += 1
        self.disk.crash(is_power=True)

    def write(self, sequence: int, data: bytes, position: int = 0, *, sync: bool = True) -> None:
        self.disk.submit(WriteJournal(sequence, 0, position, (data,), len(data), sync))

    def run(self, until: type[DiskEvent] | None = None) -> list[DiskEvent]:
        while self.agenda:
            self.agenda.run_next()
            if until is not None and self.answers and type(self.answers[-1]) is until:
                break
        answers, self.answers[:] = list(self.answers), []
        return answers

    def journal(self) -> bytes:
        return self.disk.open()["journal-0"]


def test_a_write_is_written_then_synced() -> None:
    bench = Bench()
    bench.write(1, b"a" * 100)
    assert bench.run() == [Written(1), Synced(1)]
    bench.disk.crash(is_power=True)
    assert bench.journal()[:101] == b"a" * 100 + b"\0"


def test_one_sync_covers_all_that_was_written_when_it_began() -> None:
    bench = Bench(write_mean=1, sync_mean=5_000)
    bench.write(1, b"a")
    bench.run(until=Written)
    for sequence in range(2, 6):
        bench.write(sequence, b"b", sequence)
    answers = bench.run()
    syncs = [event for event in answers if isinstance(event, Synced)]
    assert syncs == [Synced(1), Synced(5)]
    assert len([event for event in answers if isinstance(event, Written)]) < 4


def test_writes_that_ask_for_no_sync_get_one_later() -> None:
    bench = Bench(write_mean=1, sync_mean=1)
    bench.write(1, b"a", sync=False)
    assert bench.run() == [Written(1), Synced(1)]
    assert bench.agenda.now >= SYNC_LATER


def test_a_killed_process_keeps_what_was_written() -> None:
    for seed in range(20):
        bench = Bench(seed)
        bench.write(1, b"a" * 100)
        bench.run(until=Written)
        bench.disk.crash(is_power=False)
        assert bench.journal()[:100] == b"a" * 100
        assert bench.run() == []


def test_a_power_cut_leaves_nothing_all_a_prefix_or_sectors_of_an_unsynced_write() -> None:
    seen = {"nothing": 0, "all": 0, "prefix": 0, "sectors": 0}
    for seed in range(300):
        bench = Bench(seed)
        bench.write(1, b"a" * 2_000, 100)
        bench.run(until=Written)
        bench.disk.crash(is_power=True)
        image = bench.journal()[100:2_100]
        count = image.count(b"a")
        if count in (0, 2_000):
            seen["all" if count else "nothing"] += 1
        elif image == b"a" * count + bytes(2_000 - count):
            seen["prefix"] += 1
        else:
            seen["sectors"] += 1
        assert len(bench.journal()) == SIZE
    assert min(seen.values()) > 20


def test_a_later_write_may_survive_an_earlier_one() -> None:
    orders = set()
    for seed in range(60):
        bench = Bench(seed, write_mean=1, sync_mean=100_000)
        bench.write(1, b"a", 0)
        bench.write(2, b"b", 4_000)
        while not bench.answers or bench.answers[-1] != Written(2):
            bench.agenda.run_next()
        bench.disk.crash(is_power=True)
        image = bench.journal()
        orders.add((image[0:1] == b"a", image[4_000:4_001] == b"b"))
    assert (False, True) in orders


def test_what_a_new_process_finds_is_durable() -> None:
    bench = Bench(sync_mean=1_000_000)
    bench.write(1, b"a" * 100)
    bench.run(until=Written)
    bench.disk.crash(is_power=False)
    bench.disk.open()
    bench.disk.crash(is_power=True)
    assert bench.journal()[:100] == b"a" * 100


def test_a_file_is_replaced_whole_or_not_at_all() -> None:
    found = set()
    for seed in range(80):
        bench = Bench(seed)
        bench.disk.submit(ReplaceFile(7, "table", b"old"))
        assert bench.run() == [FileReplaced(7, is_done=True)]
        bench.disk.submit(ReplaceFile(8, "table", b"new"))
        bench.disk.crash(is_power=bool(seed & 1))
        files = bench.disk.open()
        found.add((files["table"], files.get("table" + TEMPORARY)))
    assert {table for table, _ in found} == {b"old", b"new"}
    assert {(b"old", b"new"), (b"old", None), (b"new", None)} <= found


def test_a_full_disk_says_so_and_changes_nothing() -> None:
    bench = Bench()
    bench.disk.is_full = True
    bench.disk.submit(ReplaceFile(1, "table", b"new"))
    bench.disk.submit(AllocateJournal(1, SIZE))
    assert sorted(bench.run(), key=repr) == [
        FileReplaced(1, is_done=False),
        JournalAllocated(1, is_done=False),
    ]
    assert sorted(bench.disk.open()) == ["block", "journal-0"]
    bench.disk.is_full = False
    bench.disk.submit(AllocateJournal(1, SIZE))
    assert bench.run() == [JournalAllocated(1, is_done=True)]
    assert bench.disk.open()["journal-1"] == bytes(SIZE)


def test_an_allocation_may_leave_no_directory_entry() -> None:
    lengths = set()
    for seed in range(40):
        bench = Bench(seed)
        bench.disk.submit(AllocateJournal(1, SIZE))
        bench.disk.crash(is_power=True)
        lengths.add(len(bench.disk.open().get("journal-1", b"none")))
    assert lengths == {4, 0, SIZE}


def test_allocating_again_keeps_what_the_file_holds() -> None:
    bench = Bench()
    bench.write(1, b"a")
    bench.run()
    bench.disk.submit(AllocateJournal(0, SIZE))
    bench.run()
    assert bench.journal()[:1] == b"a"


def test_a_removed_file_may_come_back_after_a_power_cut() -> None:
    back = set()
    for seed in range(20):
        bench = Bench(seed)
        bench.disk.submit(RemoveFile("block"))
        bench.disk.submit(RemoveFile("never was"))
        bench.disk.crash(is_power=True)
        back.add("block" in bench.disk.open())
    assert back == {True, False}


def test_a_block_is_written_in_place() -> None:
    bench = Bench()
    bench.disk.submit(WriteBlock(3, "block", 512, b"n" * 512))
    assert bench.run() == [BlockWritten(3)]
    assert bench.disk.open()["block"] == b"o" * 512 + b"n" * 512 + b"o" * 1_024
    torn = set()
    for seed in range(60):
        bench = Bench(seed)
        bench.disk.submit(WriteBlock(3, "block", 512, b"n" * 1_024))
        bench.disk.crash(is_power=False)
        torn.add(bench.disk.open()["block"].count(b"n"))
    assert {0, 512, 1_024} <= torn


def test_reads_see_the_page_cache_and_may_fail() -> None:
    bench = Bench(sync_mean=1_000_000)
    bench.write(1, b"abc", 10)
    bench.run(until=Written)
    bench.disk.submit(ReadJournal(5, 0, 9, 5))
    bench.disk.submit(ReadJournal(6, 3, 0, 5))
    answers = bench.run()
    assert JournalRead(5, b"\0abc\0") in answers
    assert JournalRead(6, None) in answers
    broken = Bench(read_error=ALWAYS)
    broken.disk.submit(ReadJournal(5, 0, 0, 5))
    assert broken.run() == [JournalRead(5, None)]


def test_a_failed_write_ends_the_node() -> None:
    bench = Bench(write_error=ALWAYS)
    bench.write(1, b"a")
    assert bench.run() == []
    assert bench.failures == 1


def test_rot_spares_the_newest_sync() -> None:
    for seed in range(60):
        bench = Bench(seed)
        bench.write(1, b"a" * 4_096, 0)
        bench.run()
        bench.write(2, b"b" * 4_096, 4_096)
        bench.run()
        for _ in range(30):
            bench.disk.rot()
        image = bench.journal()
        assert image[4_096:] == b"b" * 4_096
        assert image[:4_096] != b"a" * 4_096


def test_a_lost_write_shows_only_once_a_later_one_is_durable() -> None:
    bench = Bench(lost=ALWAYS)
    bench.write(1, b"a" * 600, 512)
    bench.run()
    assert bench.journal()[512:1_112] == b"a" * 600
    bench.write(2, b"b" * 600, 2_048)
    bench.run()
    assert bench.journal()[512:1_112] == bytes(600)
    assert bench.journal()[2_048:2_648] == b"b" * 600
    assert bench.disk.events["disk.lost"] == 1


def test_a_misdirected_write_is_elsewhere() -> None:
    bench = Bench(misdirected=ALWAYS)
    bench.write(1, b"a" * 512, 0)
    bench.run()
    bench.write(2, b"b" * 512, 4_096)
    bench.run()
    image = bench.journal()
    assert image[:512] == bytes(512) or image.count(b"a") == 512
    assert image[4_096:4_608] == b"b" * 512
    assert bench.disk.events["disk.misdirected"] == 1


def test_a_wiped_disk_is_empty() -> None:
    bench = Bench()
    bench.write(1, b"a")
    bench.disk.wipe()
    assert bench.run() == []
    assert bench.disk.open() == {}
    assert not bench.disk.rot()


def test_slow_syncs_are_slow() -> None:
    bench = Bench(slow=ALWAYS, slow_mean=50_000_000, sync_mean=1)
    bench.write(1, b"a")
    bench.run()
    assert bench.agenda.now > 50_000
