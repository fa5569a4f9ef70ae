"""What the doctor says of a killed node's folder is what the next start does, on real files.

Share: storage, about 40 s.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.server.doctor.examine import examine
from headrace.server.doctor.report import FileReport, Report, Verdict
from tests.crash.process import CrashNode, crash_node
from tests.server.doctor.test_examine import image

pytestmark = pytest.mark.slow

KILLS = 8
QUARANTINED = "the next start keeps them in quarantine"
ENDED = ("the next start removes it",)
WAIT_SECONDS = 20


@pytest.fixture
def node() -> Iterator[CrashNode]:
    with crash_node() as made:
        made.start()
        yield made


def connect(node: CrashNode) -> headrace.Client:
    return headrace.connect(str(node.tcp), username="iggy", password="iggy")


def work(client: headrace.Client, rng: random.Random) -> None:
    """Do some of all that changes files: sends, trims, retention, purges, topics that go."""
    names = [topic.name for topic in client.get_topics("shop")]
    for _ in range(rng.randrange(3, 9)):
        topic = f"shop/{rng.choice(names)}"
        for _ in range(rng.randrange(1, 12)):
            client.send(topic, [rng.randbytes(4_000)] * rng.randrange(5, 40), partition=0)
        match rng.randrange(6):
            case 0 | 1:
                client.delete_segments(topic, 0, rng.randrange(1, 3))
            case 2:
                client.purge_topic(topic)
            case 3:
                client.store_offset(topic, 0, 0, consumer="slow")
            case 4 if len(names) > 1:
                names.remove(topic.removeprefix("shop/"))
                client.delete_topic(topic)
            case _:
                add_topic(client, f"t{rng.randrange(1 << 30)}", rng)


def add_topic(client: headrace.Client, name: str, rng: random.Random) -> None:
    limits: dict[str, str | int] = {"max_topic_size": "2 MiB", "message_expiry": "1 s"}
    key = rng.choice(sorted(limits))
    durability = rng.choice(["persisted", "replicated"])
    options = {"segment_size": "1 MiB", "durability": durability, key: limits[key]}
    client.create_topic(f"shop/{name}", options=options)


def announced(report: Report) -> dict[str, FileReport]:
    """Return the files of which something goes to quarantine."""
    return {each.path: each for each in report.files if QUARANTINED in each.text}


def cases(node: CrashNode) -> list[Path]:
    return sorted((node.data / "quarantine").glob("[0-9]*"))


@pytest.mark.parametrize("seed", range(2))
def test_after_a_kill_nothing_is_announced_that_does_not_happen(node: CrashNode, seed: int) -> None:
    rng = random.Random(seed)
    with connect(node) as client:
        client.create_stream("shop")
        add_topic(client, "first", rng)
    seen: dict[Verdict, int] = {}
    for _ in range(KILLS):
        with connect(node) as client:
            work(client, rng)
            if rng.randrange(3) == 0:
                time.sleep(1.2)  # So that messages expire, and checkpoints are taken meanwhile.
        node.kill()
        before = image(node.data)
        report = examine(node.data)
        assert image(node.data) == before
        for each in report.files:
            seen[each.verdict] = seen.get(each.verdict, 0) + 1
        assert not report.is_damaged, [each for each in report.files if each.lost]
        notices = [each for each in report.files if each.verdict == Verdict.NOTICE]
        assert notices == []
        node.start()
        gone = [each.path for each in report.files if each.text.endswith(ENDED)]
        wait_gone(node, gone)
        assert cases(node) == []
    assert seen[Verdict.REPAIRED]


def wait_gone(node: CrashNode, paths: list[str]) -> None:
    """Wait until files are gone; those of dropped segments go with the next checkpoint."""
    with connect(node) as client:
        deadline = time.monotonic() + WAIT_SECONDS
        while left := [path for path in paths if (node.data / path).exists()]:
            assert time.monotonic() < deadline, left
            client.ping()
            time.sleep(0.05)


def test_bytes_that_nobody_knows_are_announced_and_kept(node: CrashNode) -> None:
    with connect(node) as client:
        client.create_stream("shop")
        client.create_topic("shop/orders", options={"segment_size": "1 MiB"})
        client.send("shop/orders", [b"x" * 1000] * 100, partition=0)
    node.stop()
    (path,) = node.data.glob("partitions/*/*/*/*/*.log")
    path.write_bytes(path.read_bytes() + b"something else")
    before = image(node.data)
    report = examine(node.data)
    assert image(node.data) == before
    assert list(announced(report)) == [path.relative_to(node.data).as_posix()]
    node.start()
    with connect(node) as client:
        assert len(client.poll("shop/orders", count=200)) == 100
    (case,) = cases(node)
    assert [each.name for each in case.glob("*.log.*")] != []
