"""Puts files of two moments into one folder, and judges what the node makes of it (DK16).

Whatever is older or newer than the rest, the node refuses and says why, or fences the partition, or
repairs from what else it has. It never gives wrong bytes, never silently fewer than it confirmed,
and never an offset twice. A whole folder of one moment is what its operator restored: it is taken
as it is.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.base.endpoints import Endpoint
from headrace.storage.copies import BLOCK_BYTES, COPIES
from headrace.wire.errors import RefusedError
from tests.crash.ages import Age, Held, read_held
from tests.crash.client import Producer
from tests.crash.damage import FILE_TYPES
from tests.crash.load import Place
from tests.crash.process import CrashNode
from tests.node import NodeError

Outcome = Literal["refused", "error", "intact"]
_STORE = "shards/1/0"
_FOLDERS = {
    "metadata folder": "metadata",
    "shards folder": "shards",
    "partitions folder": "partitions",
    "partition folder": "partitions/*/*/*",
}
_COPIES = {
    "superblock copies": f"{_STORE}/superblock",
    "metadata superblock copies": "metadata/superblock",
}
NEWER = "newer partitions"
KINDS = (*FILE_TYPES, *_COPIES, *_FOLDERS, NEWER)


@dataclass(frozen=True)
class Case:
    """What was mixed, and what came of it."""

    what: str
    outcome: Outcome
    said: str


class Archive:
    """The copies of a node's life, from which folders are put together."""

    def __init__(self, ages: list[Age], folder: Path) -> None:
        self._ages = ages
        self._folder = folder
        self._number = 0

    def restore(self, number: int) -> None:
        """Put a whole copy back, as an operator does, and see that all of it is there, twice."""
        age = self._ages[number]
        node = self._copy(age)
        with _ended(node):
            case = _judge(node, f"age {number}", age.held, _ends(age))
            assert case.outcome == "intact", case

    def mix(self, kind: str, rng: random.Random) -> Case:
        """Put one thing of one age into the folder of another, and judge the node."""
        newer = rng.randrange(1, len(self._ages))
        older = rng.randrange(newer)
        if kind == NEWER:
            return self._mix("partitions", newer=older, older=newer)
        if kind in _COPIES:
            return self._mix_copies(_COPIES[kind], rng, newer=newer, older=older)
        pattern = _FOLDERS[kind] if kind in _FOLDERS else FILE_TYPES[kind].pattern
        names = self._differing(pattern, newer=newer, older=older)
        return self._mix(rng.choice(names), newer=newer, older=older)

    def _differing(self, pattern: str, *, newer: int, older: int) -> list[str]:
        """Give what the older age has of a kind, if possible only what the newer has otherwise."""
        root, other = self._ages[older].data, self._ages[newer].data
        names = sorted(str(path.relative_to(root)) for path in root.glob(pattern))
        differing = [name for name in names if _content(root / name) != _content(other / name)]
        return differing or names

    def _mix(self, name: str, *, newer: int, older: int) -> Case:
        what = f"{name} of age {older} in age {newer}"
        source = self._ages[older].data / name
        return self._try(what, newer, older, lambda data: _put(source, data / name))

    def _mix_copies(self, name: str, rng: random.Random, *, newer: int, older: int) -> Case:
        chosen = rng.sample(range(COPIES), rng.randrange(1, COPIES))
        source = (self._ages[older].data / name).read_bytes()

        def put(data: Path) -> None:
            blocks = bytearray((data / name).read_bytes())
            for copy in chosen:
                span = slice(copy * BLOCK_BYTES, (copy + 1) * BLOCK_BYTES)
                blocks[span] = source[span]
            (data / name).write_bytes(blocks)

        what = f"copies {chosen} of {name} of age {older} in age {newer}"
        return self._try(what, newer, older, put)

    def _try(self, what: str, newer: int, older: int, put: Callable[[Path], None]) -> Case:
        truth = self._ages[newer]
        node = self._copy(truth)
        with _ended(node):
            put(node.data)
            before = _content(node.data)
            case = _judge(node, what, truth.held, _ends(truth, self._ages[older]))
            if case.outcome == "refused":
                assert _content(node.data) == before, f"{what}: refused, and changed"
        return case

    def _copy(self, age: Age) -> CrashNode:
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        node = CrashNode(folder)
        shutil.copytree(age.data, node.data)
        return node


class _ended:  # noqa: N801 - reads as a sentence
    """Kills a node at the end, and removes its folder."""

    def __init__(self, node: CrashNode) -> None:
        self._node = node

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, *_: object) -> None:
        if self._node.is_started:
            self._node.kill()
        shutil.rmtree(self._node.data.parent)


def _put(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _content(path: Path) -> dict[str, bytes]:
    """Give all files at or below a path, but locks and evidence."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != "lock"
    }


def _ends(*ages: Age) -> dict[Place, int]:
    """Give the offset behind the last one that any of these ages gave out, for each partition."""
    ends: dict[Place, int] = {}
    for age in ages:
        for place, seen in age.held.messages.items():
            ends[place] = max([ends.get(place, 0), *(each.offset + 1 for each in seen[-1:])])
    return ends


def _judge(node: CrashNode, what: str, truth: Held, ends: dict[Place, int]) -> Case:
    """Start a node twice and read everything, and send at the end.

    Raises:
        AssertionError: It gave wrong bytes, or silently too few, or an offset twice.
    """
    outcomes: list[Outcome] = []
    for _ in range(2):
        outcomes.append(_judge_start(node, what, truth))
        if len(outcomes) == 2 and node.is_started:
            ends = {place: end for place, end in ends.items() if place in truth.messages}
            _judge_sends(node.tcp, what, ends, must_all=outcomes[0] == "intact")
        if node.is_started:
            node.kill()
    assert outcomes[0] == outcomes[1], f"{what}: {outcomes}\n{node.output()}"
    return Case(what, outcomes[0], node.output())


def _judge_start(node: CrashNode, what: str, truth: Held) -> Outcome:
    node.begin()
    try:
        node.wait_ready()
    except NodeError:
        assert node.wait_end() == 1, f"{what}: {node.output()}"
        said = node.said()
        refusals = [line for line in said.splitlines() if "refused and unchanged" in line]
        assert len(refusals) == 1, f"{what}: {said}"
        assert "restore" in refusals[0], f"{what}: {said}"
        return "refused"
    held = read_held(node.tcp)
    told = f"{what}\n{node.output()}"
    assert (held.topics, held.has_last_stream) == (truth.topics, truth.has_last_stream), told
    for place, expected in truth.messages.items():
        seen = held.messages[place]
        assert seen == expected[: len(seen)], f"{place}: other bytes than were confirmed: {told}"
        if place not in held.broken:
            assert len(seen) == len(expected), f"{place}: {len(seen)}/{len(expected)}: {told}"
            assert held.stored[place] == truth.stored[place], f"{place}: stored offset: {told}"
    return "error" if held.broken else "intact"


def _judge_sends(address: Endpoint, what: str, ends: dict[Place, int], *, must_all: bool) -> None:
    """Send one batch to each partition; none may get an offset that was given out before."""
    for at, (place, end) in enumerate(sorted(ends.items())):
        producer = Producer(900 + at, place, messages=1, payload_bytes=100)
        producer.connect(address)
        try:
            refusal = producer.try_send()
        except RefusedError as error:
            refusal = error.code
        finally:
            producer.close()
        if refusal is None:
            given = producer.history[-1].base_offset
            assert given >= end, f"{what}: offset {given} of {place} is given twice"
        else:
            assert not must_all, f"{what}: {place} refuses: {refusal.name}"
