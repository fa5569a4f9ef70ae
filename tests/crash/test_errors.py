"""Lane X: the disk says no (DK1 to DK4). Each test takes a second or two of the storage share."""

import errno
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.wire.commands.topics import FLUSH_UNSAVED_BUFFER, FlushUnsavedBuffer
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import FromOffset
from tests.crash.client import TRANSIENT
from tests.crash.faults import Action, Call
from tests.crash.stage import SEGMENTS_OF_A, Stage, staged
from tests.crash.steps import faulty_node
from tests.node import START_SECONDS_MAX

pytestmark = pytest.mark.slow

JOURNAL = "/shards/1/0/journal."
METADATA_JOURNAL = "/metadata/journal."
CHECKPOINT = "/shards/1/0/checkpoint."
SUPERBLOCK = "/shards/1/0/superblock"


def send_until_broken(stage: Stage) -> None:
    """Send, and log in again and again, until the node is gone."""
    try:
        for _ in range(100):
            stage.a.send()
            stage.b.send()
            stage.reader.connect(stage.node.tcp)
    except OSError:
        return
    raise AssertionError("the node goes on")


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        (Call.WRITE, JOURNAL),
        (Call.SYNC, JOURNAL),
        (Call.WRITE, METADATA_JOURNAL),
        (Call.SYNC, METADATA_JOURNAL),
        (Call.WRITE, SUPERBLOCK),
        (Call.SYNC, SUPERBLOCK),
        (Call.WRITE, CHECKPOINT),
        (Call.SYNC, CHECKPOINT),
        (Call.RENAME, CHECKPOINT),
    ],
)
def test_an_error_of_a_store_ends_the_node_and_restart_recovers(
    library: Path, call: Call, pattern: str
) -> None:
    """DK1, DK2, O2.4: one call fails, all later ones succeed, and nothing is acknowledged."""
    with staged(library) as stage:
        stage.send(stage.a, 3)
        stage.faults.order(Action.FAIL, (call,), pattern=pattern, first=2, count=1)
        send_until_broken(stage)
        assert stage.faults.hits == 1
        assert stage.node.wait_end() == 1
        said = stage.node.output().splitlines()[-1]
        assert "Input/output error" in said, said
        assert pattern.rpartition("/")[0] in said, said
        stage.verify_after_two_starts()


def test_a_failed_sync_is_never_acknowledged(library: Path) -> None:
    """DK2: the very send whose sync failed gets no answer, though later syncs would succeed."""
    with staged(library) as stage:
        stage.send(stage.a, 3)
        stage.faults.order(Action.FAIL, (Call.SYNC,), pattern=JOURNAL, count=1)
        with pytest.raises(OSError, match=r".*"):
            stage.a.send()
        assert [send.outcome for send in stage.a.history] == ["ok"] * 3 + ["info"]
        assert stage.node.wait_end() == 1
        stage.verify_after_two_starts()


@pytest.mark.parametrize("call", [Call.WRITE, Call.SYNC])
def test_an_error_of_a_segment_fences_its_partition_alone(library: Path, call: Call) -> None:
    """DK1, DK2, O2.4: the other partition goes on, and after a restart everything is there."""
    with staged(library, payload_bytes=2_000) as stage:
        stage.send(stage.a, 8)
        stage.send(stage.b, 8)
        stage.faults.order(Action.FAIL, (call,), pattern=SEGMENTS_OF_A, count=1)
        fence(stage)
        with pytest.raises(RefusedError) as refusal:
            stage.reader.poll(stage.a.place, FromOffset(0))
        assert refusal.value.code == Code.CANNOT_READ_MESSAGE
        stage.send(stage.b, 20)
        assert len(stage.reader.read_all(stage.b.place)) >= 280
        stage.node.check_alive()
        stage.verify_after_two_starts()


def test_a_damaged_file_does_not_fill_the_journal_of_the_others(library: Path) -> None:
    """DK10, rule 12: its partition is fenced, and the others go on through checkpoints."""
    with staged(library) as stage:
        stage.send(stage.a, 8)
        stage.send(stage.b, 8)
        stage.node.stop()
        path = min(stage.node.data.glob("partitions/0/0/*/*/*.log"))
        whole = path.read_bytes()
        path.write_bytes(b"?" + whole[1:])
        stage.node.restart()
        stage.b.resume(stage.node.tcp)
        stage.send(stage.b, 40)
        stage.node.stop()
        path.write_bytes(whole)
        stage.verify_after_two_starts()


def test_a_fenced_partition_does_not_fill_the_journal_of_the_others(library: Path) -> None:
    """DK1, rule 12: the others go on through checkpoints and a whole journal."""
    with staged(library) as stage:
        stage.faults.order(Action.FAIL, (Call.WRITE,), pattern=SEGMENTS_OF_A, count=1)
        fence(stage)
        stage.b.hurry(3.0)
        stage.send(stage.b, 40)


def fence(stage: Stage) -> None:
    """Send to both partitions, and have them synced, until the one whose file fails refuses."""
    for _ in range(20):
        for place in (stage.a.place, stage.b.place):
            with suppress(RefusedError):
                stage.reader.ask(FLUSH_UNSAVED_BUFFER, FlushUnsavedBuffer(*place, fsync=True))
        code = stage.a.try_send()
        if code is not None:
            assert code == Code.CANNOT_APPEND_MESSAGE
            return
        stage.send(stage.b, 1)
    raise AssertionError("it was never fenced")


def test_an_error_of_a_read_is_an_error_of_that_read(library: Path) -> None:
    """DK3: and the next one, when the disk has recovered, gives the right bytes."""
    with staged(library) as stage:
        stage.send(stage.a, 20)
        stage.send(stage.b, 20)
        stage.faults.order(Action.FAIL, (Call.READ,), pattern=SEGMENTS_OF_A)
        with pytest.raises(RefusedError) as refusal:
            stage.reader.poll(stage.a.place, FromOffset(0))
        assert refusal.value.code == Code.CANNOT_READ_MESSAGE
        assert stage.faults.hits > 0
        assert stage.reader.poll(stage.b.place, FromOffset(0)).messages_count > 0
        stage.send(stage.a, 1)
        stage.faults.clear()
        stage.verify()
        stage.verify_after_two_starts()


@pytest.mark.parametrize(
    ("calls", "pattern"),
    [
        ((Call.WRITE, Call.CREATE), "/partitions/"),
        ((Call.WRITE, Call.CREATE), "/shards/1/0/checkpoint."),
        ((Call.WRITE, Call.CREATE), ".index"),
        ((Call.WRITE, Call.CREATE), SEGMENTS_OF_A),
    ],
)
def test_without_space_nothing_is_lost_and_service_resumes(
    library: Path, calls: tuple[Call, ...], pattern: str
) -> None:
    """DK4: writes wait or are refused, reads go on, and space is all that it takes to resume."""
    with staged(library) as stage:
        stage.send(stage.a, 2)
        stage.send(stage.b, 2)
        stage.faults.order(Action.FAIL, calls, pattern=pattern, error=errno.ENOSPC)
        threads = [
            threading.Thread(target=stage.send, args=(producer, 40))
            for producer in (stage.a, stage.b)
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        assert stage.faults.hits > 0
        stage.node.check_alive()
        stage.reader.hurry(5.0)  # Reads do not wait for space.
        assert stage.reader.poll(stage.a.place, FromOffset(0)).messages_count > 0
        stage.faults.clear()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        refusals = {
            code for each in (stage.a, stage.b) for send in each.history for code in send.refusals
        }
        assert refusals <= set(TRANSIENT)
        stage.verify()
        stage.verify_after_two_starts()


def test_without_space_for_its_journal_a_new_node_waits(library: Path) -> None:
    """DK4, O2.3: it is ready when there is space, without another start."""
    with faulty_node(library) as (node, faults):
        faults.order(Action.FAIL, (Call.ALLOCATE,), error=errno.ENOSPC)
        node.begin()
        deadline = time.monotonic() + START_SECONDS_MAX
        while faults.hits < 2:  # It asks again each second.
            node.check_alive()
            assert time.monotonic() < deadline, node.output()
            time.sleep(0.05)
        faults.clear()
        node.wait_ready()
        node.stop()
