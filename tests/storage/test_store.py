"""The store in the normal case: syncs, space, reads, checkpoints, stops."""

import msgspec
import pytest

from headrace.base.limits import PIPELINE_OPS_MAX
from headrace.ports.disk import (
    AllocateJournal,
    BlockWritten,
    ReplaceFile,
    WriteBlock,
    WriteJournal,
)
from headrace.ports.machine import Artifact
from headrace.ports.recovered import GroupCheckpoint, ViewState
from headrace.storage.checkpoint import decode_checkpoint
from headrace.storage.checkpointing import UnreadableError
from headrace.storage.store import Store
from headrace.wire.errors import Code
from headrace.wire.replica.prepares import PREPARE
from tests.storage.fake_disk import FakeDisk
from tests.storage.samples import config, formatted, opened, prepare, started
from tests.storage.world import World, commit


def write(store: Store, disk: FakeDisk, group: int, *ops: int, body: bytes = b"body") -> None:
    for op in ops:
        store.stage_prepare(*prepare(group, op, body))
        store.flush(sync=True)
        disk.settle(store)


def group_at(group: int, op: int, body: bytes = b"body") -> GroupCheckpoint:
    state = ViewState(group, 0, 0, op, is_suspect=False)
    return GroupCheckpoint(state, prepare(group, op, body)[0], b"", ())


def test_nothing_is_written_before_the_opening_is_durable() -> None:
    made = config()
    store = opened(made, formatted(made).files()).store
    store.stage_prepare(*prepare(1, 1))
    assert store.flush(sync=True) == 1
    effects = store.take_effects()
    assert [type(effect) for effect in effects] == [AllocateJournal, WriteBlock]
    assert store.flush(sync=True) == 0
    assert (store.written, store.synced) == (0, 0)


def test_a_journal_with_space_waits_for_the_opening_too() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1)
    disk = FakeDisk(disk.files())
    again = opened(config(), disk.files()).store
    again.stage_prepare(*prepare(1, 2))
    again.flush(sync=True)
    kinds = []
    while effects := again.take_effects():
        kinds += [type(effect) for effect in effects]
        for effect in effects:
            if isinstance(effect, WriteBlock):
                again.step(BlockWritten(effect.token))
    assert kinds == [WriteBlock] * 4 + [WriteJournal]


def test_copies_of_the_superblock_are_written_one_at_a_time() -> None:
    made = config()
    disk = formatted(made)
    store = opened(made, disk.files()).store
    blocks = 0
    while disk.step(store):
        disk.take(store)
        waiting = [effect for effect in disk._waiting if isinstance(effect, WriteBlock)]
        assert len(waiting) <= 1
        blocks += len(waiting)
    assert blocks >= 3


def test_one_record_for_a_turn_and_several_when_it_is_too_large() -> None:
    store, disk = started(config())
    for op in range(1, 4):
        store.stage_prepare(*prepare(1, op))
    assert store.flush(sync=True) == 1
    for op in range(4, 8):
        store.stage_prepare(*prepare(1, op, bytes(2000)))
    assert store.flush(sync=True) == 3
    disk.settle(store)
    (group,) = opened(config(), disk.files()).groups
    assert [entry.header.op for entry in group.entries] == list(range(1, 8))


def test_the_class_replicated_is_synced_five_ticks_later() -> None:
    store, disk = started(config())
    store.tick(10)
    store.stage_prepare(*prepare(1, 1))
    sequence = store.flush(sync=False)
    disk.settle(store)
    assert (store.written, store.synced) == (sequence, 0)
    store.tick(14)
    disk.settle(store)
    assert store.synced == 0
    store.tick(15)
    disk.settle(store)
    assert store.synced >= sequence
    assert store.probes.counts == {"journal: a sync is forced": 1}


def test_an_idle_journal_records_its_sync_point_once() -> None:
    """O2.1: within 5 ticks, so that hardly anything is ever ambiguous."""
    store, disk = started(config())
    write(store, disk, 1, 1, 2)
    for now in range(20):
        store.tick(now)
        disk.settle(store)
    assert store.probes.counts == {"journal: idle sync point": 1}
    assert store.synced == 3
    journal = disk.files()["journal.0"]
    lost = journal.index(prepare(1, 2)[0])
    damaged = disk.files() | {"journal.0": journal[:lost] + b"?" + journal[lost + 1 :]}
    (finding,) = opened(config(), damaged).findings
    assert finding.kind == "rot", "not taken for a torn tail"


def test_no_space_refuses_until_a_retry_succeeds() -> None:
    """O2.3, DK4: twenty cycles, each retry a second later, nothing is lost."""
    made = config()
    disk = formatted(made)
    disk.is_full = True
    store = opened(made, disk.files()).store
    disk.settle(store)
    now = 0
    for cycle in range(20):
        disk.is_full = True
        assert cycle or not store.has_room(10)
        for _ in range(3):
            now += 99
            store.tick(now)
            disk.settle(store)
        disk.is_full = False
        now += 100
        store.tick(now)
        disk.settle(store)
        assert store.has_room(10)
        write(store, disk, 1, cycle + 1)
    assert store.probes.counts["journal: no space for a file"] >= 1
    (group,) = opened(made, disk.files()).groups
    assert len(group.entries) == 20


def test_a_checkpoint_without_space_is_tried_again() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1)
    disk.is_full = True
    number = store.begin_checkpoint([group_at(1, 1)], lambda *_: None)
    disk.settle(store)
    assert store.is_checkpointing
    store.tick(99)
    disk.is_full = False
    disk.settle(store)
    assert store.checkpointed == 0
    store.tick(100)
    disk.settle(store)
    assert store.checkpointed == number
    assert not store.is_checkpointing


def test_a_newer_checkpoint_replaces_one_without_space() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1, 2)
    disk.is_full = True
    store.begin_checkpoint([group_at(1, 1)], lambda *_: None)
    disk.settle(store)
    disk.is_full = False
    number = store.begin_checkpoint([group_at(1, 2)], lambda *_: None)
    assert store.probes.counts["checkpoint: a newer one replaces one without space"] == 1
    disk.settle(store)
    assert store.checkpointed == number, "it does not wait until the older one is tried again"
    (group,) = opened(config(), disk.files()).groups
    assert group.checkpoint == group_at(1, 2)


def test_a_file_with_an_op_that_cannot_be_read_stays() -> None:
    """What only the journal holds is not freed: an acknowledged op would be gone."""
    made = config(files=4, file_bytes=8192)
    store, disk = started(made)
    write(store, disk, 2, 1)
    ops = 0
    while not store.wants_checkpoint():
        ops += 1
        write(store, disk, 1, ops, body=bytes(500))

    def unreadable(group: int, op: int) -> None:
        raise UnreadableError(group, op)

    store.begin_checkpoint([group_at(1, ops, bytes(500))], unreadable)
    disk.settle(store)
    assert store.probes.counts["checkpoint: a file stays for what cannot be read"] == 1
    assert [finding.kind for finding in store.take_findings()] == ["full"]
    recovered = opened(made, disk.files()).groups
    assert [each.checkpoint is None for each in recovered] == [False, True]
    assert [entry.header.op for entry in recovered[1].entries] == [1]


def test_a_checkpoint_asked_for_meanwhile_comes_next() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1, 2, 3)
    numbers = [store.begin_checkpoint([group_at(1, op)], lambda *_: None) for op in (1, 2, 3)]
    assert store.is_checkpointing
    disk.settle(store)
    assert store.checkpointed == numbers[-1]
    assert [name for name in disk.files() if name.startswith("checkpoint")] == ["checkpoint.3"]
    (group,) = opened(config(), disk.files()).groups
    assert group.checkpoint == group_at(1, 3)
    assert group.entries == ()


def test_unchanged_groups_are_not_encoded_again() -> None:
    """O2.8."""
    store, disk = started(config())
    write(store, disk, 1, 1)
    write(store, disk, 2, 1)
    kept = group_at(1, 1)
    for _ in range(3):
        store.begin_checkpoint([kept, group_at(2, 1)], lambda *_: None)
        disk.settle(store)
    assert store._checkpointer._encoder.blocks_encoded == 4


def test_groups_that_are_not_given_again_stay_in_the_checkpoint() -> None:
    """O2.8: a checkpoint is told what has changed, and holds every group."""
    store, disk = started(config())
    for group in (1, 2, 3):
        write(store, disk, group, 1, 2)
    store.begin_checkpoint([group_at(group, 1) for group in (1, 2, 3)], lambda *_: None)
    disk.settle(store)
    store.stage_gone(3)
    store.flush(sync=True)
    store.capture_gone(3)
    store.capture(group_at(2, 2))
    store.begin_checkpoint([], lambda *_: None)
    disk.settle(store)
    assert store._checkpointer._encoder.blocks_encoded == 4
    first, second = opened(config(), disk.files()).groups
    assert first.checkpoint == group_at(1, 1)
    assert second.checkpoint == group_at(2, 2)


def test_what_waits_for_another_checkpoint_holds_all_changes() -> None:
    """Only the newest one that waits is written: it must not lack what the others knew."""
    store, disk = started(config())
    for group in (1, 2, 3):
        write(store, disk, group, 1, 2)
    everyone = [group_at(group, 1) for group in (1, 2, 3)]
    store.begin_checkpoint(everyone, lambda *_: None)
    store.capture_gone(3)
    store.begin_checkpoint([group_at(1, 2)], lambda *_: None)
    number = store.begin_checkpoint([group_at(2, 2)], lambda *_: None)
    disk.settle(store)
    assert store.checkpointed == number
    checkpoint = decode_checkpoint(disk.files()[f"checkpoint.{number}"])
    assert list(checkpoint.groups) == [group_at(1, 2), group_at(2, 2)]


def test_one_stuck_group_never_fills_the_journal() -> None:
    """O2.2: its uncommitted ops travel from file to file, over many laps."""
    made = config(files=6, file_bytes=32768)
    world = World(made, 1)
    world.stuck = 1
    world.disk.settle(world.store)
    for op in range(1, PIPELINE_OPS_MAX + 1):
        store = world.store
        header, body = prepare(1, op)
        store.stage_prepare(header, body)
        group = world.after(1)
        group.op = op
        group.ops[group.op] = (header, body)
        world.flush()
        world.disk.settle(store)
        world.tick()
    refused = 0
    for turn in range(600):
        refused += not world.stage_prepare(2)
        world.flush()
        world.disk.settle(world.store)
        world.tick()
        world.history = world.history[-1:]
        world.flushed = []
        world.disk.settle(world.store)
        if turn % 150 == 149:
            world.crash()
            world.disk.settle(world.store)
    assert refused < 60
    assert world.store._journal.ring.head.ordinal > 5 * 6, "over many laps"
    assert len(world.groups[1].ops) == PIPELINE_OPS_MAX
    assert world.store.read(1, 1, token=99), "the oldest op has travelled along"


def test_live_entries_that_fill_the_journal_refuse_and_lose_nothing() -> None:
    world = World(config(files=4, file_bytes=8192), 3)
    world.stuck = 1
    world.disk.settle(world.store)
    for _ in range(200):
        world.stage_prepare(1)
        if world.groups.get(1):
            world.stage_view(1)
        world.flush()
        world.disk.settle(world.store)
        world.tick()
        world.disk.settle(world.store)
    assert not world.store.has_room(2000)
    world.crash()
    world.disk.settle(world.store)
    commit(world.groups[1], world.groups[1].op)
    world.checkpoint()
    world.disk.settle(world.store)
    assert world.store.has_room(2000), "service resumes when the ops are committed"


def test_what_is_held_back_takes_room_too() -> None:
    """Ops that wait for a gap to close are journaled at once, and the reserve is not for them."""
    made = config()
    store, _ = started(made)
    body = made.record_bytes_max // 2
    assert store.has_room(body)
    assert not store.has_room(body, held_count=100, held_bytes=2 * made.journal_bytes_max)
    assert store.has_room(body, held_count=1, held_bytes=body)


def test_reads_are_verified() -> None:
    store, disk = started(config())
    write(store, disk, 1, 1, 2, 3)
    assert not store.read(1, 4, 70)
    assert not store.read(2, 1, 71)
    assert store.read(1, 2, 72)
    disk.settle(store)
    assert store.take_reads() == [(72, *prepare(1, 2))]
    assert store.take_reads() == []
    held = disk.cached["journal.0"]
    held[held.index(prepare(1, 3)[0]) + PREPARE.at("view")] ^= 1  # the view, which no seal covers
    store.read(1, 3, 73)
    disk.settle(store)
    assert store.take_reads() == [(73, b"", b"")]
    assert [finding.kind for finding in store.take_findings()] == ["rot"]
    disk.reads_fail = True
    store.read(1, 1, 74)
    disk.settle(store)
    assert store.take_reads() == [(74, b"", b"")]


def test_ops_whose_file_was_overwritten_are_not_held() -> None:
    store, disk = started(config(files=4, file_bytes=8192))
    for op in range(1, 80):
        write(store, disk, 1, op)
        if store.wants_checkpoint():
            store.begin_checkpoint([group_at(1, op)], lambda *_: None)
            disk.settle(store)
    assert store._journal.ring.head.ordinal > 4
    oldest = next(op for op in range(1, 80) if store.read(1, op, op))
    assert 1 < oldest < 79
    disk.settle(store)
    store.take_reads()
    for op in range(oldest, 80):
        assert store.read(1, op, op)
    disk.settle(store)
    assert store.take_reads() == [(op, *prepare(1, op)) for op in range(oldest, 80)]


def test_an_op_without_a_body_says_whether_it_ever_had_one() -> None:
    store, disk = started(config())
    store.stage_prepare(prepare(1, 1)[0], None, is_never_held=True)
    store.stage_prepare(prepare(1, 2)[0], None)
    store.flush(sync=True)
    disk.settle(store)
    store.begin_checkpoint(
        [GroupCheckpoint(ViewState(1, 0, 0, 0, is_suspect=False), b"", b"", ())],
        lambda group, op: (prepare(group, op)[0], None),
    )
    disk.settle(store)
    (group,) = opened(config(), disk.files()).groups
    assert [(each.body, each.is_never_held) for each in group.entries] == [
        (None, True),
        (None, False),
    ]


def test_a_clean_stop() -> None:
    store, disk = started(config(boot_identity=1))
    store.stage_prepare(*prepare(1, 1))
    store.flush(sync=False)
    store.stop_clean()
    is_stopped_at_once = store.is_stopped
    assert not is_stopped_at_once
    disk.settle(store)
    assert store.is_stopped
    after = opened(config(boot_identity=2), disk.files())
    assert not after.is_power_loss
    assert after.findings == ()


def test_files_keep_the_size_that_they_were_made_with() -> None:
    """A larger journal in the configuration is no reason not to start."""
    store, disk = started(config(file_bytes=8192))
    write(store, disk, 1, 1)
    larger = msgspec.structs.replace(config(file_bytes=65_536), record_bytes_max=65_536)
    again = opened(larger, disk.files()).store
    disk.settle(again)
    assert again.room_code(9_000) == Code.TOO_BIG_MESSAGE_PAYLOAD
    write(again, disk, 1, 2)
    (group,) = opened(config(file_bytes=8192), disk.files()).groups
    assert [entry.header.op for entry in group.entries] == [1, 2]


def test_an_unclean_stop_and_another_boot() -> None:
    store, disk = started(config(boot_identity=1))
    write(store, disk, 1, 1)
    assert not opened(config(boot_identity=1), disk.files()).is_power_loss
    after = opened(config(boot_identity=2), disk.files())
    assert after.is_power_loss
    assert [finding.text for finding in after.findings] == ["unclean stop, new boot"]


def test_ceilings_survive_checkpoints() -> None:
    store, disk = started(config())
    store.stage_ceiling(1, 65_536)
    store.flush(sync=True)
    disk.settle(store)
    assert opened(config(), disk.files()).ceilings == ((1, 65_536),)
    store.begin_checkpoint([group_at(1, 1)], lambda *_: None)
    disk.settle(store)
    store.stage_ceiling(2, 9)
    store.flush(sync=True)
    disk.settle(store)
    assert opened(config(), disk.files()).ceilings == ((1, 65_536), (2, 9))


def test_a_group_restarts_with_its_view_commit_and_log() -> None:
    """Review finding 11: never from zero, and twice the same (rule: restart twice)."""
    store, disk = started(config())
    write(store, disk, 1, 1, 2)
    store.begin_checkpoint(
        [
            GroupCheckpoint(
                ViewState(1, 4, 3, 2, is_suspect=False),
                prepare(1, 2)[0],
                b"clients",
                (Artifact(0, 2, b"machine"),),
            )
        ],
        prepare,
    )
    disk.settle(store)
    write(store, disk, 1, 3)
    store.stage_view(ViewState(1, 5, 5, 3, is_suspect=False))
    store.flush(sync=True)
    disk.settle(store)
    for _ in range(2):
        result = opened(config(), disk.files())
        (group,) = result.groups
        assert group.state == ViewState(1, 5, 5, 3, is_suspect=False)
        assert group.checkpoint is not None
        assert PREPARE.decode(group.checkpoint.commit_header).op == 2
        assert [entry.header.op for entry in group.entries] == [3]
        disk = FakeDisk(disk.files())
        disk.settle(result.store)


@pytest.mark.parametrize("length", [0, 1, 50, 10_000])
def test_state_comes_from_an_atomic_checkpoint(length: int) -> None:
    """Review finding 13: a torn temporary file, or one nobody names yet, changes nothing."""
    store, disk = started(config())
    write(store, disk, 1, 1)
    store.begin_checkpoint([group_at(1, 1)], lambda *_: None)
    disk.settle(store)
    before = opened(config(), disk.files())
    store.begin_checkpoint([group_at(1, 1)], lambda *_: None)
    (effect,) = (each for each in store.take_effects() if isinstance(each, ReplaceFile))
    for name in (effect.name + ".tmp", effect.name):
        torn = opened(config(), disk.files() | {name: effect.data[:length]})
        assert torn.groups == before.groups
        after = FakeDisk(disk.files() | {name: effect.data[:length]})
        after.settle(torn.store)
        assert name not in after.files(), "what nobody names is removed"


def test_a_write_is_within_its_file_and_aligned() -> None:
    world = World(config(files=4, file_bytes=8192), 5)
    written = []
    for _ in range(300):
        world.stage()
        world.flush()
        world.disk.take(world.store)
        written += [each for each in world.disk._waiting if isinstance(each, WriteJournal)]
        world.disk.settle(world.store)
        world.tick()
    assert len(written) > 100
    for effect in written:
        assert effect.position % 64 == 0
        assert effect.position + len(effect.data) <= 8192
