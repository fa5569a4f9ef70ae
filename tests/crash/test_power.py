"""Lane P in small: real power cuts (DK7, DK8, DK4 on a full disk). About 15 s."""

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.wire.commands.topics import DELETE_TOPIC, DeleteTopic
from headrace.wire.identifiers import FromOffset
from tests.crash.checker import PartitionChecker
from tests.crash.client import TRANSIENT, Client, Producer
from tests.crash.full import fill
from tests.crash.load import make_topics
from tests.crash.payloads import PAYLOAD_BYTES_MIN
from tests.crash.power import power_disk, run_cuts
from tests.crash.process import CrashNode
from tests.watched_nodes import hand_in

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop_mounts")]

_DISK_BYTES = 64 << 20


def test_power_cuts_under_load() -> None:
    """Class persisted loses nothing; class replicated goes on above its ceiling, and says so."""
    tally = run_cuts(cuts=3, seed=2)
    assert tally.cuts >= 3
    assert tally.confirmed > 100
    assert tally.lost_ranges > 0


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(tmp_path: Path) -> None:
    """DK4 with real ENOSPC: service resumes without a restart when space returns."""
    with power_disk(_DISK_BYTES) as disk:
        node = CrashNode(tmp_path, data=disk.mount_point / "data")
        node.start()
        reader = Client(1)
        reader.connect(node.tcp)
        place = make_topics(reader)[0]
        producer = Producer(10, place, messages=10, payload_bytes=20_000)
        producer.connect(node.tcp)
        try:
            for _ in range(3):
                assert producer.send().outcome == "ok"
            filler = disk.mount_point / "filler"
            fill(filler, disk.free_bytes())
            thread = threading.Thread(target=send_many, args=(producer, 40))
            thread.start()
            time.sleep(2.0)
            node.check_alive()
            assert reader.poll(place, FromOffset(0)).messages_count > 0
            filler.unlink()
            thread.join(60)
            assert not thread.is_alive()
            assert all(send.outcome == "ok" for send in producer.history)
            refused = {code for send in producer.history for code in send.refusals}
            assert refused <= set(TRANSIENT)
            for _ in range(2):
                assert not PartitionChecker().check(producer.history, reader.read_all(place))
                node.kill()
                node.restart()
                reader.connect(node.tcp)
        finally:
            producer.close()
            reader.close()
            if node.is_started:
                node.kill()
            hand_in(node.output(), disk.mount_point)


def test_a_power_cut_on_a_full_disk_lets_people_in_who_can_make_room(tmp_path: Path) -> None:
    """DK4, FM-7: who deletes a topic makes room for the others, even in a journal that is full."""
    with power_disk(_DISK_BYTES) as disk:
        node = CrashNode(tmp_path, data=disk.mount_point / "data", boot_identity=1)
        node.start()
        admin = Client(1)
        admin.connect(node.tcp)
        persisted, replicated = make_topics(admin)
        weak = Producer(10, replicated)
        strong = [
            Producer(11 + at, persisted, messages=1, payload_bytes=size)
            for at, size in enumerate((20_000, PAYLOAD_BYTES_MIN))
        ]
        try:
            for producer in (weak, *strong):
                producer.connect(node.tcp)
                send_many(producer, 200)
                assert producer.history[-1].outcome == "ok"
            fill(disk.mount_point / "filler", disk.free_bytes())
            for producer in strong:
                send_until_full(producer)
            given = weak.history[-1].end_offset
            disk.cut()
            node.kill()
            disk.unmount()
            disk.mount()
            node.set_boot_identity(2)
            for _ in range(2):
                if node.is_started:
                    node.kill()
                node.restart()
                admin.connect(node.tcp)
                assert admin.poll(persisted, FromOffset(0)).messages_count > 0
            assert "no space left" in node.output()
            admin.ask(DELETE_TOPIC, DeleteTopic(persisted[0], persisted[1]))
            weak.resume(node.tcp)
            assert weak.send().outcome == "ok"
            assert weak.history[-1].base_offset >= given
        finally:
            for client in (weak, *strong, admin):
                client.close()
            if node.is_started:
                node.kill()
            hand_in(node.output(), disk.mount_point)


def send_many(producer: Producer, count: int) -> None:
    for _ in range(count):
        producer.send()


def send_until_full(producer: Producer) -> None:
    """Fill the journal to the brim with what no segment has space for."""
    producer.hurry(2.0)
    with suppress(TimeoutError):
        while producer.try_send() is None:
            pass
