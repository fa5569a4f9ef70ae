"""Files whose checksums are right and whose content is not what this program writes.

A checksum says that bytes are as they were written, not who wrote them: another program, a bug, or
a client whose message looks like a record. They are damage, and nothing untrue comes out.
"""

import pytest

from headrace.base.checksum import xxh3_64
from headrace.ports.recovered import ViewState
from headrace.storage.config import identity_of, journal_key, journal_name
from headrace.storage.records import RECORD_ALIGNMENT, RECORD_HEADER_BYTES, Head
from headrace.storage.scan import scan_journal
from headrace.storage.store import Opened, Refused, StoreConfig, Wiped, format_store, open_store
from headrace.storage.superblock import Superblock, encode_superblock_file
from tests.storage.commands import Commands
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import INCARNATION, config, opened, prepare, started

OPS = 5
ENTRY = RECORD_HEADER_BYTES
VIEW_ENTRY = ENTRY + 24 + 256  # behind the prepare of the same record
EXTRA = ENTRY + 24


def small(replica_count: int = 3) -> StoreConfig:
    return config(replica_count=replica_count, files=4, file_bytes=8192)


def image(replica_count: int = 3) -> dict[str, bytes]:
    """Return the files of a store: five synced records of an op each, a view with the third."""
    store, disk = started(small(replica_count))
    for op in range(1, OPS + 1):
        store.stage_prepare(*prepare(1, op))
        if op == 3:
            store.stage_view(ViewState(1, 2, 1, 2, is_suspect=False))
        store.flush(sync=True)
        disk.settle(store)
    for now in range(12):
        store.tick(now)
        disk.settle(store)
    return disk.files()


def heads(files: dict[str, bytes], made: StoreConfig) -> dict[int, Head]:
    key = journal_key(identity_of(made, INCARNATION))
    scan = scan_journal(files, files_count=made.journal_files, key=key)
    return {head.sequence: head for head in scan.heads}


def forged(files: dict[str, bytes], record: int, at: int, new: bytes) -> dict[str, bytes]:
    """Return the files with other bytes in a record; all checksums are right for them."""
    row = heads(files, small())
    data = bytearray(files["journal.0"])
    place = row[record].position + at
    data[place : place + len(new)] = new
    checksum = row[record].previous.to_bytes(8, "little")
    for sequence in range(record, max(row) + 1):
        start = row[sequence].position
        data[start + 56 : start + 64] = checksum  # of the record before
        covered = data[start : start + row[sequence].head_bytes]
        checksum = xxh3_64(covered[:120] + covered[128:]).to_bytes(8, "little")
        data[start + 120 : start + 128] = checksum
    return files | {"journal.0": bytes(data)}


def test_forged_checksums_are_believed() -> None:
    """So that what follows is not refused for its checksum alone."""
    files = image()
    commit_at = VIEW_ENTRY + 24
    found = opened(small(), forged(files, 3, commit_at, bytes([1])))
    assert not found.findings
    assert [entry.header.op for entry in found.groups[0].entries] == [1, 2, 3, 4, 5]
    assert found.groups[0].state.commit == 1


@pytest.mark.parametrize(
    ("at", "new"),
    [
        pytest.param(80, bytes([33]), id="a length that is not aligned"),
        pytest.param(88, bytes([3]), id="fewer entries than it says"),
        pytest.param(88, bytes([1]), id="more entries than it says"),
        pytest.param(ENTRY, bytes([7]), id="an entry of an unknown kind"),
        pytest.param(ENTRY + 2, bytes([1]), id="an entry with reserved bytes in use"),
        pytest.param(VIEW_ENTRY, bytes([1]), id="an entry that is longer than the record"),
        pytest.param(VIEW_ENTRY + 20, bytes([9]), id="a log newer than its view"),
    ],
)
def test_a_record_that_nobody_writes_is_as_good_as_missing(at: int, new: bytes) -> None:
    found = opened(small(), forged(image(), 3, at, new))
    [group] = found.groups
    assert [entry.header.op for entry in group.entries] == [1, 2, 4, 5]
    assert group.state.is_suspect
    [finding] = found.findings
    assert finding.kind == "rot"
    assert "records 3 to 3 are damaged or missing" in finding.text


@pytest.mark.parametrize("body_at", [64, 60_000])
def test_a_body_outside_of_its_record_is_damaged(body_at: int) -> None:
    """The op stays known: another replica has its body."""
    found = opened(small(), forged(image(), 3, ENTRY + 4, body_at.to_bytes(4, "little")))
    [group] = found.groups
    assert [entry.header.op for entry in group.entries if entry.body is None] == [3]
    assert "the body of op 3 of group 1" in found.findings[0].text


@pytest.mark.parametrize("at", [EXTRA + 100, EXTRA + 60], ids=["a field", "the kind of frame"])
def test_a_prepare_that_was_never_sealed_is_left_out(at: int) -> None:
    files = image()
    position = heads(files, small())[3].position + at
    other = bytes([files["journal.0"][position] ^ 1])
    found = opened(small(), forged(files, 3, at, other))
    [group] = found.groups
    assert [entry.header.op for entry in group.entries] == [1, 2, 4, 5]
    assert "holds a prepare that was never sealed" in found.findings[0].text


def test_a_file_that_lost_its_end_is_rot_though_no_record_is_missing() -> None:
    """Nothing says how far the newest file was synced once its end is gone."""
    for replica_count in (3, 1):
        files = image(replica_count)
        files["journal.0"] = files["journal.0"][:-512]
        found = open_store(small(replica_count), files)
        if replica_count == 3:
            assert isinstance(found, Opened)
            assert found.groups[0].state.is_suspect
            assert [finding.text for finding in found.findings] == [
                "the file has 7680 bytes and had 8192"
            ]
        else:
            assert isinstance(found, Refused)
            assert "journal.0 at byte 7680: the file has 7680 bytes" in found.sentence


def test_a_record_whose_entries_are_behind_the_end_of_the_file_is_missing() -> None:
    files = image()
    last = heads(files, small())[OPS]
    files["journal.0"] = files["journal.0"][: last.position + RECORD_HEADER_BYTES + 10]
    found = opened(small(), files)
    assert [entry.header.op for entry in found.groups[0].entries] == [1, 2, 3, 4]
    assert found.groups[0].state.is_suspect


@pytest.mark.parametrize("replica_count", [1, 3])
def test_marker_and_superblock_of_two_lives(replica_count: int) -> None:
    """One of them is from before the store was formatted anew."""
    other = format_store(small(replica_count), INCARNATION + 1)
    refuse_or_lose(
        image(replica_count) | {"superblock": other["superblock"]},
        replica_count,
        "superblock and marker are of two lives",
    )


@pytest.mark.parametrize("replica_count", [1, 3])
def test_a_superblock_without_a_journal(replica_count: int) -> None:
    identity = identity_of(small(replica_count), INCARNATION)
    empty = encode_superblock_file(Superblock(identity=identity), sequence=99)
    refuse_or_lose(
        image(replica_count) | {"superblock": empty},
        replica_count,
        "superblock describes no journal",
    )


def refuse_or_lose(files: dict[str, bytes], replica_count: int, text: str) -> None:
    """Check that a store is refused alone, and given up where peers can bring it back."""
    found = open_store(small(replica_count), files)
    assert isinstance(found, Refused if replica_count == 1 else Wiped)
    assert text in found.findings[-1].text


def test_a_refusal_names_the_first_foreign_file() -> None:
    store, disk = started(config(replica=1, files=4, file_bytes=8192))
    for op in range(1, 12):
        store.stage_prepare(*prepare(1, op, bytes(1500)))
        store.flush(sync=True)
        disk.settle(store)
    foreign = {name: disk.files()[name] for name in ("journal.0", "journal.1")}
    found = open_store(small(), image() | foreign)
    assert isinstance(found, Refused)
    assert found.sentence.startswith("journal.0 at byte 0: journal.0 holds the journal of another")


@pytest.mark.parametrize("shift", [0, 1], ids=["where a record may be", "elsewhere"])
@pytest.mark.parametrize("replica", [0, 1], ids=["our own", "another store's"])
def test_a_message_that_looks_like_a_record_is_none(replica: int, shift: int) -> None:
    """Behind a damaged head the next record is searched: the body that lies there is not believed.

    A client may send a journal file as messages.
    """
    other, other_disk = started(config(replica=replica, files=4, file_bytes=8192))
    other.stage_prepare(*prepare(1, 9))
    other.flush(sync=True)
    other_disk.settle(other)
    record = other_disk.files()["journal.0"][:512]
    assert record.startswith(b"HRJRNAL1")
    disk = with_message(record)
    at = disk.files()["journal.0"].index(record, RECORD_HEADER_BYTES)
    disk = with_message(bytes(shift + -at % RECORD_ALIGNMENT) + record)
    files = disk.files()
    at = files["journal.0"].index(record, RECORD_HEADER_BYTES)
    assert at % RECORD_ALIGNMENT == shift
    damaged = bytearray(files["journal.0"])
    damaged[20] ^= 1
    found = opened(small(), files | {"journal.0": bytes(damaged)})
    [group] = found.groups
    assert [entry.header.op for entry in group.entries] == [2]
    assert "records 1 to 1 are damaged or missing" in found.findings[0].text


def with_message(payload: bytes) -> FakeDisk:
    """Return the disk of a store that journaled this message, and another one."""
    store, disk = started(small())
    for op, each in ((1, payload), (2, b"-")):
        store.stage_prepare(*prepare(1, op, each))
        store.flush(sync=True)
        disk.settle(store)
    for now in range(12):
        store.tick(now)
        disk.settle(store)
    return disk


def test_a_file_that_lost_its_end_in_a_later_lap() -> None:
    """Every file was written in the lap before, so all of them had their length."""
    commands = Commands()
    op = 0
    while not any(head.lap == 2 for head in commands.stage.heads()):
        op += 5
        for line in ("append p 5", f"commit p {op}", "checkpoint", "pass 110"):
            commands.run(line)
    commands.run("kill")
    stage = commands.stage
    newest = max(stage.heads(), key=lambda head: head.sequence)
    assert newest.lap == 2
    name = journal_name((newest.file + 1) % stage.config.journal_files)
    stage.files[name] = stage.files[name][:-64]
    told = commands.run("open")
    assert f"rot: {name}: the file has 16320 bytes and had 16384" in told
