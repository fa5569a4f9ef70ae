"""Whole batches at the wrong place in the files of a real node: none is served (P6, DK15).

About 60 s: two nodes are filled once, and a copy of one is started for each case.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import headrace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.client.errors import DataDamaged, RefusedByServer
from headrace.server.doctor.examine import examine
from headrace.server.doctor.report import Lost
from headrace.spark.columns import Clip
from headrace.spark.segments import SegmentSource, open_segment
from headrace.wire.batches import decode_batch_header, split_batches
from headrace.wire.errors import Code
from tests.crash.process import CrashNode

pytestmark = pytest.mark.slow

ORDERS, OTHERS, AGAIN = "shop/orders", "shop/others", "shop/again"
SENDS, BATCH = 100, 25
BATCHES_MISPLACED = (3, 17)
FILE = "00000000000000000000.log"


def value(tag: bytes, offset: int) -> bytes:
    return (b"%s-%09d-" % (tag, offset)).ljust(1000, b".")


def fill(client: headrace.Client, path: str, tag: bytes) -> None:
    for number in range(SENDS):
        values = [value(tag, number * BATCH + each) for each in range(BATCH)]
        client.send(path, values)


def make_topic(client: headrace.Client, path: str, tag: bytes) -> None:
    client.create_topic(path, options={"segment_size": "1 MiB"})
    fill(client, path, tag)
    client.flush_partition(path, 0, sync=True)


def segment_of(data: Path, topic: int, epoch: int) -> Path:
    [folder] = data.glob(f"partitions/0/{topic}/0-*")
    return folder / str(epoch) / FILE


@dataclass(frozen=True)
class Original:
    """The folder of a stopped node, and sealed segments of others with the same lengths."""

    data: Path
    others: dict[str, bytes]


@pytest.fixture(scope="module")
def original() -> Iterator[Original]:
    with TemporaryDirectory(prefix="headrace-misplaced-") as folder:
        first, second = (Path(folder, name) for name in ("first", "second"))
        others = {}
        for home in (first, second):
            home.mkdir()
            node = CrashNode(home)
            node.start()
            with headrace.connect(str(node.tcp)) as client:
                client.create_stream("shop")
                make_topic(client, ORDERS, b"right" if home is first else b"wrong")
                if home is first:
                    make_topic(client, OTHERS, b"wrong")
                    make_topic(client, AGAIN, b"wrong")
                    others["before a purge"] = segment_of(node.data, 2, 0).read_bytes()
                    client.purge_topic(AGAIN)
                    fill(client, AGAIN, b"right")
            node.stop()
        others["another topic"] = segment_of(first / "data", 1, 0).read_bytes()
        others["another node"] = segment_of(second / "data", 0, 0).read_bytes()
        yield Original(first / "data", others)


class Case:
    """A copy of the folder with misplaced batches, and what must not be served of it."""

    def __init__(self, original: Original, folder: Path, kind: str, *, is_whole: bool) -> None:
        self.node = CrashNode(folder)
        shutil.copytree(original.data, self.node.data)
        self.path = AGAIN if kind == "before a purge" else ORDERS
        self.file = segment_of(self.node.data, *((2, 1) if self.path == AGAIN else (0, 0)))
        held = bytearray(self.file.read_bytes())
        position = SEGMENT_HEADER_BYTES
        self.wrong: list[int] = []
        batches = split_batches(original.others[kind][SEGMENT_HEADER_BYTES:])
        for number, batch in enumerate(batches):
            if is_whole or number in BATCHES_MISPLACED:
                ours, theirs = decode_batch_header(held[position:]), decode_batch_header(batch)
                assert (ours.base_offset, ours.length) == (theirs.base_offset, theirs.length)
                assert held[position : position + len(batch)] != batch
                held[position : position + len(batch)] = batch
                self.wrong += range(ours.base_offset, ours.base_offset + ours.messages_count)
            position += len(batch)
        assert position == len(held)
        self.file.write_bytes(held)

    def lost(self) -> list[int]:
        """Return the offsets that the doctor names as lost."""
        found = [each.lost for each in examine(self.node.data).files if each.lost]
        assert len(found) == 1
        return [offset for each in found[0] for offset in offsets_of(each)]

    def check_polls(self, client: headrace.Client) -> list[int]:
        """Poll from every batch; return the offsets of the batches that cannot be read."""
        refused: list[int] = []
        for first in range(0, SENDS * BATCH, BATCH):
            try:
                polled = client.poll(self.path, start=first, count=2 * BATCH)
            except RefusedByServer as error:
                if error.code != Code.CANNOT_READ_MESSAGE:
                    raise
                refused += range(first, first + BATCH)
            else:
                found = [(each.offset, each.value) for each in polled]
                assert len(found) >= BATCH
                right = [(first + at, value(b"right", first + at)) for at in range(len(found))]
                assert found == right
        return refused


def offsets_of(lost: Lost) -> range:
    return range(lost.first, lost.last + 1)


@pytest.mark.parametrize("kind", ["another topic", "another node", "before a purge"])
@pytest.mark.parametrize(
    ("is_whole", "index"),
    [(False, "kept"), (False, "deleted"), (False, "rebuilt"), (True, "kept"), (True, "deleted")],
)
def test_nothing_misplaced_is_served(
    original: Original, tmp_path: Path, kind: str, index: str, is_whole: bool
) -> None:
    case = Case(original, tmp_path, kind, is_whole=is_whole)
    if index != "kept":
        case.file.with_suffix(".index").unlink()
    lost = case.lost()
    node = case.node
    refused: list[int] = []
    try:
        for _ in range(2 if index == "rebuilt" else 1):
            node.start()
            with headrace.connect(str(node.tcp)) as client:
                refused = case.check_polls(client)
                assert len(client.poll(OTHERS, start=0, count=10)) == 10
                check_spark(client, case.path)
            node.stop()
    finally:
        if node.is_started:
            node.kill()
    assert set(case.wrong) <= set(refused)
    assert refused == lost, "the doctor names what polls cannot read"
    assert "cannot be read: the segment does not hold the batches" in node.output()
    if index == "kept" and not is_whole:
        assert len(refused) < 6 * len(case.wrong)


def check_spark(client: headrace.Client, path: str) -> None:
    """A task that reads the file itself is refused the piece."""
    plan = client.plan_segments(path)
    with (
        open_segment(SegmentSource.of(plan, plan.segments[0])) as opened,
        pytest.raises(DataDamaged, match="are not the batches that were committed"),
    ):
        list(opened.pieces(Clip()))
