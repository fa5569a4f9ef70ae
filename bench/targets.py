"""What the node is to reach, each as a ratio of figures of the same run."""

from collections.abc import Mapping
from typing import NamedTuple

from bench.cases import (
    DISK,
    LARGEST,
    LOCKSTEP,
    SHAPES,
    SINGLE,
    SIXTEEN,
    TAIL,
    name_of,
    pipelined,
)
from bench.frames import CLASSES, PERSISTED, REPLICATED
from bench.rows import Row


class Target(NamedTuple):
    """One aim: a figure, the one beside it, and how the two must relate."""

    sentence: str
    figure: str
    beside: str
    bound: float
    is_at_most: bool = False

    def judge(self, figures: Mapping[str, float]) -> "Verdict":
        """Say where we stand, as far as both figures were measured."""
        figure, beside = figures.get(self.figure), figures.get(self.beside)
        if figure is None or not beside:
            return Verdict(self, None, None, None, is_met=None)
        ratio = figure / beside
        is_met = ratio <= self.bound if self.is_at_most else ratio >= self.bound
        return Verdict(self, figure, beside, ratio, is_met=is_met)


class Verdict(NamedTuple):
    """A target and where we stand; all None when it was not measured."""

    target: Target
    figure: float | None
    beside: float | None
    ratio: float | None
    is_met: bool | None

    def as_json(self) -> dict[str, object]:
        """Give the verdict as JSON has it."""
        return self._asdict() | {"target": self.target._asdict()}

    def __str__(self) -> str:
        relation = "<=" if self.target.is_at_most else ">="
        wanted = f"{relation} {self.target.bound:g}"
        if self.ratio is None:
            return f"not measured              {wanted:>8}  {self.target.sentence}"
        word = "met   " if self.is_met else "MISSED"
        return (
            f"{word} {self.ratio:8.2f} {wanted:>8}  {self.target.sentence}"
            f" ({self.figure:,.1f} against {self.beside:,.1f})"
        )


FILES_TO_BATCHES = 0.6
SYNC_TO_LATENCY = 1.5
CONNECTIONS_TO_ONE = 3.0
ECHO_TO_LATENCY = 1.5
COPY_TO_TAIL = 0.5
COPY_TO_DISK = 0.3
NATS_TO_BATCHES = 5.0
NATS_TO_SINGLE = 0.7

TARGETS = (
    Target(
        "produce 1000 x 1 KiB pipelined, page cache, of the file work alone, MB/s",
        "batches replicated",
        "files replicated",
        FILES_TO_BATCHES,
    ),
    Target(
        "produce 1000 x 1 KiB pipelined, durable, of the file work with its syncs, MB/s",
        "batches persisted",
        "files persisted",
        FILES_TO_BATCHES,
    ),
    Target(
        "durable single message: p50 above page cache, of a bare write + fdatasync, us",
        "sync latency",
        "bare sync",
        SYNC_TO_LATENCY,
        is_at_most=True,
    ),
    Target(
        "durable single messages: 16 connections against one, requests/s",
        "single persisted 16",
        "single persisted 1",
        CONNECTIONS_TO_ONE,
    ),
    Target(
        "single message in lockstep: p50 against the bare echo on the same loop, us",
        "single latency",
        "echo latency",
        ECHO_TO_LATENCY,
        is_at_most=True,
    ),
    Target(
        "poll 1000 x 1 KiB from the memory tail, of the loopback copy, MB/s",
        "poll tail",
        "copy tail",
        COPY_TO_TAIL,
    ),
    Target(
        "poll 1000 x 1 KiB from disk, verified, of the loopback copy, MB/s",
        "poll disk",
        "copy disk",
        COPY_TO_DISK,
    ),
    Target(
        "idle: resident memory of the largest process, of 80 MiB, MiB",
        "idle memory",
        "idle memory allowed",
        1.0,
        is_at_most=True,
    ),
    Target(
        "loaded: peak memory of the largest process, of what the configuration allows, MiB",
        "loaded memory",
        "loaded memory allowed",
        1.0,
        is_at_most=True,
    ),
    Target(
        "produce 1000 x 1 KiB in lockstep, page cache, against NATS, MB/s",
        "nats ours 1000 x 1 KiB",
        "nats 1000 x 1 KiB",
        NATS_TO_BATCHES,
    ),
    Target(
        "produce 1000 x 100 B in lockstep, page cache, against NATS, MB/s",
        "nats ours 1000 x 100 B",
        "nats 1000 x 100 B",
        NATS_TO_BATCHES,
    ),
    Target(
        "produce 1 x 100 B in lockstep, page cache, against NATS, MB/s",
        "nats ours 1 x 100 B",
        "nats 1 x 100 B",
        NATS_TO_SINGLE,
    ),
    Target(
        "produce 1 x 1 KiB in lockstep, page cache, against NATS, MB/s",
        "nats ours 1 x 1 KiB",
        "nats 1 x 1 KiB",
        NATS_TO_SINGLE,
    ),
)

SHARD_TARGETS = (
    Target(
        "8 partitions, 1 x 100 B pipelined, connections at their owners: two shards against one",
        "send/1 x 100 B/8 c x 32/owner 2",
        "send/1 x 100 B/8 c x 32/owner 1",
        1.35,
    ),
    Target(
        "8 partitions, 1 x 100 B pipelined, connections anywhere: two shards against one",
        "send/1 x 100 B/8 c x 32/random 2",
        "send/1 x 100 B/8 c x 32/random 1",
        1.15,
    ),
    Target(
        "four producers, four partitions, 1000 x 1 KiB: two shards against one",
        "send/1000 x 1 KiB/4 c/owner 2",
        "send/1000 x 1 KiB/4 c/owner 1",
        1.5,
    ),
    Target(
        "four producers, four partitions, 1000 x 100 B: two shards against one",
        "send/1000 x 100 B/4 c/owner 2",
        "send/1000 x 100 B/4 c/owner 1",
        1.5,
    ),
    Target(
        "a send of 256 B in lockstep: p50 forwarded against local, us",
        "send/256 B/p50 forwarded",
        "send/256 B/p50 local",
        1.5,
        is_at_most=True,
    ),
    Target(
        "a send of 1 MiB in lockstep: p50 forwarded against local, us",
        "send/1 MiB/p50 forwarded",
        "send/1 MiB/p50 local",
        1.3,
        is_at_most=True,
    ),
    Target(
        "idle: resident memory of the largest shard, of 80 MiB, MiB",
        "idle shard",
        "idle shard allowed",
        1.0,
        is_at_most=True,
    ),
)

RECONCILER_TARGETS = (
    Target(
        "an idle pass over 10,000 partitions against one over 100, us",
        "idle pass 10000",
        "idle pass 100",
        1.5,
        is_at_most=True,
    ),
    Target(
        "one new partition among 10,000 against one among 100, us",
        "one partition 10000",
        "one partition 100",
        2.0,
        is_at_most=True,
    ),
    Target(
        "the longest step of a shard that serves 10,000 partitions, checkpoints too, of 20 ms, ms",
        "longest step 10000",
        "longest step aimed at",
        1.0,
        is_at_most=True,
    ),
)


def figures_of(rows: dict[str, Row]) -> dict[str, float]:
    """Give the figures that targets speak of, as far as they were measured without an error."""
    rows = {name: row for name, row in rows.items() if not row.errors}
    figures: dict[str, float] = {}
    for durability in CLASSES:
        row = rows.get(name_of("produce", durability, LARGEST, pipelined(LARGEST)))
        if row is not None:
            figures[f"batches {durability}"] = row.megabytes
            figures[f"files {durability}"] = row.beside["files MB/s"]
    for kind in (TAIL, DISK):
        row = rows.get(name_of("consume", kind, LARGEST, pipelined(LARGEST)))
        if row is not None:
            figures[f"poll {kind}"] = row.megabytes
            figures[f"copy {kind}"] = row.beside["copy MB/s"]
    return figures | single_figures(rows) | nats_figures(rows)


def single_figures(rows: dict[str, Row]) -> dict[str, float]:
    """Give the figures of single messages."""
    figures = {}
    cached = rows.get(name_of("produce", REPLICATED, SINGLE, LOCKSTEP))
    if cached is not None:
        figures["single latency"] = cached.p50_us
        figures["echo latency"] = cached.beside["bare p50"]
    durable = rows.get(name_of("produce", PERSISTED, SINGLE, LOCKSTEP))
    if durable is not None:
        figures["sync latency"] = durable.p50_us - durable.beside["cached p50"]
        figures["bare sync"] = durable.beside["sync p50"]
    many = rows.get(name_of("produce", PERSISTED, SINGLE, SIXTEEN))
    if many is not None:
        figures["single persisted 16"] = many.rate
        figures["single persisted 1"] = many.beside["one req/s"]
    return figures


def nats_figures(rows: dict[str, Row]) -> dict[str, float]:
    """Give our figures and those of NATS in lockstep."""
    figures = {}
    for shape in SHAPES:
        row = rows.get(name_of("produce", REPLICATED, shape, LOCKSTEP))
        if row is not None and "nats MB/s" in row.beside:
            figures[f"nats ours {shape}"] = row.megabytes
            figures[f"nats {shape}"] = row.beside["nats MB/s"]
    return figures
