"""Damages the files of a stopped node, and judges what the node makes of it (DK10, DK11, DK14).

Whatever is damaged, the node refuses and says why, or repairs, or answers reads of that partition
with an error. It never gives wrong bytes, and never silently fewer than it confirmed. One case is
left where it may give fewer and says so: damage to the newest records of the journal, together with
the record that says how far it was synced, looks like a write that a crash tore (rule 5).
"""

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import FromOffset
from tests.crash.client import Client, Producer
from tests.crash.load import Place, make_topics
from tests.crash.payloads import Seen, read_batches
from tests.crash.process import CrashNode
from tests.node import NodeError

Outcome = Literal["refused", "error", "cut", "intact"]
_CUT = "bytes behind the last whole record are cut"
_IDLE_SECONDS = 0.3  # after which the journal has recorded what is synced (rule 5)


@dataclass(frozen=True)
class FileType:
    """Some files of a node, and which of their bytes are meant."""

    pattern: str
    start: int = 0
    end: int | None = None
    is_derived: bool = False  # can always be made anew


FILE_TYPES = {
    "journal": FileType("shards/1/0/journal.*"),
    "metadata journal": FileType("metadata/journal.*"),
    "superblock": FileType("shards/1/0/superblock"),
    "metadata superblock": FileType("metadata/superblock"),
    "checkpoint": FileType("shards/1/0/checkpoint.*"),
    "metadata checkpoint": FileType("metadata/checkpoint.*"),
    "marker": FileType("shards/1/0/marker"),
    "metadata marker": FileType("metadata/marker"),
    "layout": FileType("layout"),
    "segment header": FileType("partitions/*/*/*/*/*.log", end=SEGMENT_HEADER_BYTES),
    "segment body": FileType("partitions/*/*/*/*/*.log", start=SEGMENT_HEADER_BYTES),
    "index": FileType("partitions/*/*/*/*/*.index", is_derived=True),
}


@dataclass(frozen=True)
class Original:
    """A node's folder as it was left, and what it holds."""

    data: Path
    expected: dict[Place, list[Seen]]
    stored: dict[Place, int]


def make_original(folder: Path) -> Original:
    """Fill a node and end it: sealed segments, a checkpoint, and ops that the journal alone has."""
    node = CrashNode(folder)
    node.start()
    client = Client(1)
    client.connect(node.tcp)
    places = make_topics(client)
    producers = [
        Producer(10 + at, place, messages=20, payload_bytes=4_000)
        for at, place in enumerate(places)
    ]
    for producer in producers:
        producer.connect(node.tcp)
    for _ in range(30):
        for producer in producers:
            assert producer.send().outcome == "ok"
    stored = {place: 100 + at for at, place in enumerate(places)}
    for place, offset in stored.items():
        client.store_offset(place, offset)
    node.stop()
    node.restart()
    for producer in producers:
        producer.resume(node.tcp)
        for _ in range(2):
            assert producer.send().outcome == "ok"
    client.connect(node.tcp)
    expected = {place: client.read_all(place) for place in places}
    time.sleep(_IDLE_SECONDS)
    node.kill()
    for each in (client, *producers):
        each.close()
    return Original(node.data, expected, stored)


# Kinds of damage: each takes the bytes of a file and gives what is left of them.

Damage = Callable[[bytes, int, int, random.Random], bytes]


def flip_bit(data: bytes, start: int, end: int, rng: random.Random) -> bytes:
    at = _used_position(data, start, end, rng)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def change_byte(data: bytes, start: int, end: int, rng: random.Random) -> bytes:
    at = _used_position(data, start, end, rng)
    return data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :]


def change_block(data: bytes, start: int, end: int, rng: random.Random) -> bytes:
    at = _used_position(data, start, end, rng) // 4096 * 4096
    length = min(4096, len(data) - at)
    return data[:at] + rng.randbytes(length) + data[at + length :]


def zero_run(data: bytes, start: int, end: int, rng: random.Random) -> bytes:
    at = _used_position(data, start, end, rng)
    length = min(rng.choice([16, 512, 4096, 65536]), end - at)
    return data[:at] + bytes(length) + data[at + length :]


def truncate(data: bytes, start: int, end: int, rng: random.Random) -> bytes:
    return data[: rng.choice([end - 1, rng.randrange(start, end), start])]


DAMAGES: dict[str, Damage] = {
    "bit": flip_bit,
    "byte": change_byte,
    "block": change_block,
    "zeros": zero_run,
    "truncation": truncate,
}


def _used_position(data: bytes, start: int, end: int, rng: random.Random) -> int:
    """Choose a byte that means something: files are allocated larger than they are used."""
    for _ in range(200):
        at = rng.randrange(start, end)
        if data[at]:
            return at
    return start


@dataclass(frozen=True)
class Case:
    """One damaged file, and what came of it."""

    path: str
    outcome: Outcome
    said: str


class Patient:
    """A copy of the original whose files are damaged one after another."""

    def __init__(self, original: Original, folder: Path) -> None:
        self._original = original
        self._folder = folder
        self._number = 0

    def copy(self) -> CrashNode:
        """Give a node on a fresh copy, not started."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        node = CrashNode(folder)
        shutil.copytree(self._original.data, node.data)
        return node

    def damage_one(self, file_type: str, damage: str, rng: random.Random) -> Case:
        """Damage one file of a type, and judge the node."""
        node = self.copy()
        chosen = FILE_TYPES[file_type]
        path = rng.choice(sorted(node.data.glob(chosen.pattern)))
        data = path.read_bytes()
        end = len(data) if chosen.end is None else min(chosen.end, len(data))
        path.write_bytes(DAMAGES[damage](data, chosen.start, end, rng))
        return self._judge(node, path, data)

    def truncate(self, path_name: str, length: int) -> Case:
        """Cut one file to a length, and judge the node."""
        node = self.copy()
        path = node.data / path_name
        data = path.read_bytes()
        path.write_bytes(data[:length])
        return self._judge(node, path, data)

    def remove_one(self, pattern: str, rng: random.Random) -> Case:
        """Remove one file or folder, and judge the node."""
        node = self.copy()
        path = rng.choice(sorted(node.data.glob(pattern)))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        return self._judge(node, path, None)

    def _judge(self, node: CrashNode, path: Path, whole: bytes | None) -> Case:
        name = str(path.relative_to(node.data))
        try:
            outcome, said = self.judge(node)
            if outcome == "refused" and whole is not None:
                assert name.rsplit("/", 1)[-1] in said, f"{said} does not name {name}"
                path.write_bytes(whole)  # Nothing else was changed: with the file all is well.
                assert self.judge(node)[0] == "intact", f"{name} put back, and not well"
        finally:
            if node.is_started:
                node.kill()
            shutil.rmtree(node.data.parent)
        return Case(name, outcome, said)

    def judge(self, node: CrashNode) -> tuple[Outcome, str]:
        """Start a node and read everything; give what came of it and what it said.

        Raises:
            AssertionError: It gave wrong bytes, or fewer than were confirmed without an error.
        """
        node.begin()
        try:
            node.wait_ready()
        except NodeError:
            assert node.wait_end() == 1, node.output()
            said = [line for line in node.output().splitlines() if "refused and unchanged" in line]
            assert len(said) == 1, node.output()
            return "refused", said[0]
        client = Client(50)
        try:
            client.connect(node.tcp)
            outcome = self._judge_reads(client, said_cut=_CUT in node.output())
        finally:
            client.close()
            node.kill()
        return outcome, node.output()

    def _judge_reads(self, client: Client, *, said_cut: bool) -> Outcome:
        outcome: Outcome = "intact"
        for place, expected in self._original.expected.items():
            seen, is_whole = _read_all(client, place)
            assert seen == expected[: len(seen)], f"{place}: other bytes than were confirmed"
            if is_whole and len(seen) < len(expected):
                assert said_cut, f"{place}: {len(seen)} of {len(expected)}, silently"
                outcome = "cut"
            elif is_whole:
                assert client.stored_offset(place) == self._original.stored[place]
            else:
                outcome = "error"
        return outcome


def _read_all(client: Client, place: Place) -> tuple[list[Seen], bool]:
    """Read a partition up to its end or to the first error; say which it was."""
    seen: list[Seen] = []
    try:
        while (polled := client.poll(place, FromOffset(len(seen)), count=100)).messages_count:
            seen += read_batches(polled.batches)
    except RefusedError as refusal:
        if refusal.code != Code.CANNOT_READ_MESSAGE:
            raise
        return seen, False
    return seen, True
