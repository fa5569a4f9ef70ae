"""Rot, cuts, missing and foreign files: noticed or harmless, never a wrong header or body."""

from functools import cache

import pytest

from headrace.base.checksum import xxh3_64
from headrace.ports.machine import Artifact
from headrace.ports.recovered import GroupCheckpoint, RecoveredGroup, ViewState
from headrace.storage.copies import BLOCK_BYTES, COPIES
from headrace.storage.store import Opened, Refused, StoreConfig, Wiped, open_store
from headrace.wire.replica.prepares import PREPARE
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import CLUSTER, config, opened, prepare, started

SMALL = 8192
OPS = 6


def small(replica_count: int = 3) -> StoreConfig:
    return config(replica_count=replica_count, files=4, file_bytes=SMALL)


@cache
def image(replica_count: int = 3) -> dict[str, bytes]:
    """Give the files of a small store after a checkpoint, an unclean stop and an idle time."""
    store, disk = started(small(replica_count))
    for op in range(1, OPS + 1):
        store.stage_prepare(*prepare(1, op, b"payload"))
        if op == 4:
            store.stage_view(ViewState(1, 2, 1, 2, is_suspect=False))
        store.flush(sync=True)
        disk.settle(store)
    header, _ = prepare(1, 2, b"payload")
    state = ViewState(1, 2, 1, 2, is_suspect=False)
    group = GroupCheckpoint(state, header, b"table", (Artifact(1, 2, b"machine"),))
    store.begin_checkpoint([group], lambda _, op: prepare(1, op, b"payload"))
    for now in range(12):
        store.tick(now)
        disk.settle(store)
    assert store.checkpointed == 1
    return disk.files()


def is_true(group: RecoveredGroup) -> bool:
    """Whether everything that a group says was once staged for it."""
    return (
        group.state.view in (0, 2)
        and all(
            PREPARE.encode(entry.header) == prepare(1, entry.header.op, b"payload")[0]
            and entry.body in (None, prepare(1, entry.header.op, b"payload")[1])
            for entry in group.entries
        )
        and group.checkpoint is not None
        and group.checkpoint.client_table == b"table"
        and group.checkpoint.artifacts == (Artifact(1, 2, b"machine"),)
    )


def is_whole(result: Opened) -> bool:
    return [entry.header.op for entry in result.groups[0].entries] == list(
        range(3, OPS + 1)
    ) and all(entry.body is not None for entry in result.groups[0].entries)


def judge(files: dict[str, bytes], replica_count: int) -> str:
    """Open damaged files; give how it ended, after checking that nothing untrue came out."""
    result = open_store(small(replica_count), files)
    if isinstance(result, Wiped):
        assert replica_count > 1
        assert result.findings
        return "wiped"
    if isinstance(result, Refused):
        assert "at byte" in result.sentence
        return "refused"
    assert len(result.groups) == 1
    assert is_true(result.groups[0])
    if replica_count == 1:
        assert is_whole(result), "one replica never opens with less than it acknowledged"
    if not is_whole(result):
        assert result.findings
        missing = len(result.groups[0].entries) < OPS - 2
        assert result.groups[0].state.is_suspect or not missing
    return "opened"


def flipped(files: dict[str, bytes], name: str, position: int, mask: int) -> dict[str, bytes]:
    data = bytearray(files[name])
    data[position] ^= mask
    return files | {name: bytes(data)}


def test_the_image_is_whole() -> None:
    for replica_count in (1, 3):
        result = opened(small(replica_count), image(replica_count))
        assert is_whole(result)
        assert is_true(result.groups[0])
        assert not result.findings
        assert result.groups[0].state == ViewState(1, 2, 1, 2, is_suspect=False)


@pytest.mark.slow
@pytest.mark.parametrize("replica_count", [1, 3])
def test_every_flipped_byte_is_noticed_or_harmless(replica_count: int) -> None:
    """DK10, every byte of the journal, the marker and the checkpoint."""
    files = image(replica_count)
    ends: dict[str, dict[str, int]] = {}
    for name, data in files.items():
        counts = ends.setdefault(name, {})
        step = 1 if data.strip(b"\0") else 61  # a file that was never written is zero
        step = 3 if name == "superblock" else step  # mostly zero too, and one checksum for all
        for position in range(0, len(data), step):
            end = judge(flipped(files, name, position, 1 << position % 8), replica_count)
            counts[end] = counts.get(end, 0) + 1
    assert list(ends["superblock"]) == ["opened"]
    assert "opened" not in ends["marker"]
    assert "opened" not in ends["checkpoint.1"]
    assert replica_count == 1 or list(ends["journal.0"]) == ["opened"]


@pytest.mark.slow
@pytest.mark.parametrize("replica_count", [1, 3])
def test_every_cut_is_noticed_or_harmless(replica_count: int) -> None:
    """DK11, every length of every file."""
    files = image(replica_count)
    for name, data in files.items():
        for length in range(0, len(data), 1 if len(data) < 1000 else 7):
            judge(files | {name: data[:length]}, replica_count)


@pytest.mark.parametrize("replica_count", [1, 3])
@pytest.mark.parametrize("run_bytes", [512, 4096])
def test_zeroed_runs_are_noticed_or_harmless(replica_count: int, run_bytes: int) -> None:
    """DK10: a whole sector or block reads as zero."""
    files = image(replica_count)
    for name, data in files.items():
        for start in range(0, len(data), 512):
            zeroed = data[:start] + bytes(min(run_bytes, len(data) - start))
            judge(files | {name: zeroed + data[len(zeroed) :]}, replica_count)


@pytest.mark.parametrize("name", ["marker", "superblock", "checkpoint.1", "journal.0"])
def test_a_missing_file(name: str) -> None:
    """DK14: peers bring it back, and without peers nothing is opened."""
    for replica_count, wanted in ((3, "wiped"), (1, "refused")):
        files = {each: data for each, data in image(replica_count).items() if each != name}
        is_served = name == "journal.0" and replica_count == 3
        assert judge(files, replica_count) == ("opened" if is_served else wanted)


def test_a_missing_journal_makes_all_groups_suspect() -> None:
    files = {each: data for each, data in image().items() if each != "journal.0"}
    result = opened(small(), files)
    assert result.is_suspect
    assert result.groups[0].state.is_suspect
    assert result.groups[0].checkpoint is not None
    assert [finding.kind for finding in result.findings] == ["rot"]


@pytest.mark.parametrize("damaged", range(COPIES + 1))
def test_a_superblock_with_damaged_copies(damaged: int) -> None:
    """Two copies of four suffice; the next write heals the others."""
    files = image()
    for copy in range(damaged):
        files = flipped(files, "superblock", copy * BLOCK_BYTES + 100, 1)
    if damaged > COPIES - 2:
        assert judge(files, 3) == "wiped"
        return
    result = opened(small(), files)
    assert len(result.findings) == damaged
    disk = FakeDisk(files)
    disk.settle(result.store)
    assert opened(small(), disk.files()).findings == ()


@pytest.mark.parametrize(
    "other",
    [
        config(cluster=CLUSTER + 1, files=4, file_bytes=SMALL),
        config(replica=1, files=4, file_bytes=SMALL),
        config(replica_count=5, files=4, file_bytes=SMALL),
    ],
)
def test_a_foreign_store_is_refused(other: StoreConfig) -> None:
    """DK17."""
    result = open_store(other, image())
    assert isinstance(result, Refused)
    assert "marker at byte 0: marker belongs to cluster" in result.sentence
    assert "put the folder back" in result.sentence


@pytest.mark.parametrize("name", ["superblock", "journal.0"])
def test_one_foreign_file_is_refused(name: str) -> None:
    """DK17: two nodes' files exchanged."""
    other = config(replica=1, files=4, file_bytes=SMALL)
    store, disk = started(other)
    store.stage_prepare(*prepare(1, 1))
    store.flush(sync=True)
    disk.settle(store)
    result = open_store(small(), image() | {name: disk.files()[name]})
    assert isinstance(result, Refused)
    assert result.sentence.startswith(f"{name} at byte 0")


@pytest.mark.parametrize("name", ["marker", "superblock", "journal.0"])
def test_another_version_says_so(name: str) -> None:
    """DK20; a version behind a wrong checksum is damage."""
    files = image()
    block_bytes = {"marker": 64, "superblock": BLOCK_BYTES}.get(name, 0)
    for start in range(0, len(files[name]), block_bytes or SMALL):
        files = flipped(files, name, start + 8, 3)
        data = bytearray(files[name])
        if block_bytes:
            end = start + block_bytes
            data[end - 8 : end] = xxh3_64(data[start : end - 8]).to_bytes(8, "little")
        else:
            head_bytes = int.from_bytes(data[84:88], "little")
            data[120:128] = xxh3_64(data[:120] + data[128:head_bytes]).to_bytes(8, "little")
        files = files | {name: bytes(data)}
    result = open_store(small(), files)
    assert isinstance(result, Refused)
    assert "version 2, this program reads 1" in result.sentence
    assert "start the release that wrote it" in result.sentence


@pytest.mark.parametrize("name", ["marker", "superblock"])
def test_damage_is_not_taken_for_a_version(name: str) -> None:
    files = image()
    for copy in range(COPIES if name == "superblock" else 1):
        files = flipped(files, name, copy * BLOCK_BYTES + 8, 3)
    assert judge(files, 3) == "wiped"


def test_a_rotten_record_in_the_middle_stops_nothing_that_peers_can_replace() -> None:
    """Review finding 17: what lies behind the damage is used, what is lost is absent."""
    store, disk = started(config())
    for op in range(1, 10):
        store.stage_prepare(*prepare(1, op))
        store.flush(sync=True)
    disk.settle(store)
    store.tick(0)
    store.tick(9)
    disk.settle(store)
    files = disk.files()
    fifth = files["journal.0"].index(prepare(1, 5)[0])
    result = opened(config(), flipped(files, "journal.0", fifth + 3, 16))
    (group,) = result.groups
    assert [entry.header.op for entry in group.entries] == [1, 2, 3, 4, 6, 7, 8, 9]
    assert group.state.is_suspect
    (finding,) = result.findings
    assert (finding.kind, finding.file) == ("rot", "journal.0")
    assert finding.position <= fifth < finding.position + 512
    assert result.store.wants_checkpoint(), "a checkpoint frees the damaged file"


def test_one_replica_refuses_rot_and_names_file_position_and_remedy() -> None:
    """Review finding 17, with nobody to ask."""
    files = image(1)
    fifth = files["journal.0"].index(prepare(1, 5, b"payload")[0])
    result = open_store(small(1), flipped(files, "journal.0", fifth, 1))
    assert isinstance(result, Refused)
    assert result.sentence.startswith("journal.0 at byte ")
    assert "records 5 to 5 are damaged or missing" in result.sentence
    assert "restore the folder from a backup" in result.sentence


def test_a_rotten_body_is_known_and_awaited() -> None:
    files = image()
    header, body = prepare(1, 5, b"payload")
    at = files["journal.0"].index(header) + len(header)
    at = files["journal.0"].index(body, at)
    result = opened(small(), flipped(files, "journal.0", at + 300, 1))
    (group,) = result.groups
    assert [entry.header.op for entry in group.entries if entry.body is None] == [5]
    assert not group.state.is_suspect
    assert not any(entry.is_never_held for entry in group.entries)
    refused = open_store(small(1), flipped(image(1), "journal.0", at + 300, 1))
    assert isinstance(refused, Refused)
    assert "the body of op 5 of group 1" in refused.sentence


def test_rot_is_healed_by_a_checkpoint() -> None:
    """After it no restart is troubled by the damage any more."""
    files = flipped(image(), "journal.0", 40, 1)
    result = opened(small(), files)
    assert result.is_suspect
    (group,) = result.groups
    held = {entry.header.op: entry for entry in group.entries}
    disk = FakeDisk(files)
    disk.settle(result.store)
    assert opened(small(), disk.files()).is_suspect, "the second restart is told too"
    assert group.checkpoint is not None
    result.store.begin_checkpoint(
        [group.checkpoint],
        lambda _, op: prepare(1, op, b"payload") if op in held else None,
    )
    disk.settle(result.store)
    healed = opened(small(), disk.files())
    assert not healed.is_suspect
    assert not healed.findings
    assert [entry.header.op for entry in healed.groups[0].entries] == list(held)
