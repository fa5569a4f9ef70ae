"""The kernel against a bare hash loop, a plain copy and its twin, in one run.

Prints one table for batches of 1000 messages. Each round measures every row once, in turn, so a
neighbour on the machine disturbs all rows alike; the figure of a row is the median of its rounds.
Compare ratios within a run, never times between runs.

    python bench/kernel.py [--shortest]
"""

import argparse
import importlib
import os
import platform
import statistics
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from headrace import kernel
from headrace.kernel import BATCH_HEADER_BYTES, MESSAGE_ID_BYTES, NATIVE, OFFSET_MAX, twin

MESSAGES = 1_000
PAYLOAD_SIZES = (100, 1_024)
ROUNDS = 60
SAMPLE_SECONDS = 0.001
CREATED = 1_700_000_000_000_000
STAMP = (7, 1_000, 1_800_000_000_000_000)
CHECKED, UNCHECKED = True, False

HASH = "hash_frames"
COPY = "copy"
FUNCTIONS = ("admit", "verify", "columns, checked", "columns, unchecked", "build")

Work = Callable[[], object]


class Source(NamedTuple):
    """The arguments of `build`."""

    ids: bytes
    timestamps: bytes
    payloads: bytes
    payload_offsets: bytes
    headers: None
    header_offsets: None


def source_of(payload_bytes: int) -> Source:
    """Messages without user headers; what is in them makes no difference."""
    return Source(
        filled(MESSAGES * MESSAGE_ID_BYTES),
        array("q", range(CREATED, CREATED + MESSAGES)).tobytes(),
        filled(MESSAGES * payload_bytes),
        array("i", range(0, MESSAGES * payload_bytes + 1, payload_bytes)).tobytes(),
        None,
        None,
    )


def filled(size: int) -> bytes:
    """Return bytes that repeat only after a prime number of them."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def works_of(implementation: ModuleType, source: Source) -> dict[str, Work]:
    """What is measured of one implementation, by name."""
    sent = implementation.build(*source)
    header = sent[:BATCH_HEADER_BYTES]
    buffer = bytearray(sent)
    implementation.admit(buffer, MESSAGES, *STAMP)
    stamped = bytes(buffer)

    def admit() -> None:
        # A stamped batch is not what a producer sends: put its header back. This is part of the
        # figure: 113 ns when measured alone, or about one hundredth of the smaller batch.
        buffer[:BATCH_HEADER_BYTES] = header
        implementation.admit(buffer, MESSAGES, *STAMP)

    return {
        "admit": admit,
        "verify": lambda: implementation.verify(stamped),
        "columns, checked": lambda: implementation.columns(stamped, 0, OFFSET_MAX, CHECKED),
        "columns, unchecked": lambda: implementation.columns(stamped, 0, OFFSET_MAX, UNCHECKED),
        "build": lambda: implementation.build(*source),
    }


def yardsticks_of(source: Source) -> dict[str, Work]:
    """One copy of a batch and, with the native kernel, the hash of each of its frames."""
    batch = kernel.build(*source)
    target = bytearray(len(batch))

    def copy() -> None:
        target[:] = batch

    yardsticks: dict[str, Work] = {COPY: copy}
    if NATIVE:
        hash_frames = importlib.import_module("headrace.kernel._native").hash_frames
        yardsticks[HASH] = lambda: hash_frames(batch)
    return yardsticks


def measure(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Median seconds of one call of each, over interleaved rounds."""
    repeats = {}
    for name, work in works.items():
        once = min(seconds_of(work, 1) for _ in range(5))
        repeats[name] = max(1, round(SAMPLE_SECONDS / once))
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            samples[name].append(seconds_of(work, repeats[name]))
    return {name: statistics.median(times) for name, times in samples.items()}


def seconds_of(work: Work, repeats: int) -> float:
    """Return the seconds of one call, as the mean of some."""
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def report(payload_bytes: int, rounds: int) -> None:
    """Measure and print everything for one size of payload."""
    source = source_of(payload_bytes)
    works = yardsticks_of(source)
    works |= {f"twin {name}": work for name, work in works_of(twin, source).items()}
    if NATIVE:
        works |= works_of(importlib.import_module("headrace.kernel._native"), source)
    times = measure(works, rounds)
    print(f"\n{MESSAGES} messages of {payload_bytes} bytes")
    print(f"{'':20}{'us/batch':>10}{'ns/msg':>9}{'x hash':>8}{'x copy':>8}{'twin x':>8}")
    for name in (HASH, COPY, *FUNCTIONS):
        print_row(name, times)


def print_row(name: str, times: dict[str, float]) -> None:
    """Print one function or yardstick; without the native kernel, that of the twin."""
    twin_time = times.get(f"twin {name}")
    taken = times.get(name, twin_time)
    if taken is None:
        return
    hashed = times.get(HASH)
    print(
        f"{name:20}{taken * 1e6:10.1f}{taken * 1e9 / MESSAGES:9.1f}"
        f"{ratio(taken, hashed):>8}{ratio(taken, times[COPY]):>8}{ratio(twin_time, taken):>8}"
    )


def ratio(time_taken: float | None, yardstick: float | None) -> str:
    """Return one time in terms of another, or a dash if either was not measured."""
    if time_taken is None or yardstick is None:
        return "-"
    return f"{time_taken / yardstick:.2f}"


def cpu_model() -> str:
    """Return what the processor calls itself."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def main() -> None:
    """Print the conditions, then a table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shortest", action="store_true", help="one round: whether it runs")
    rounds = 1 if parser.parse_args().shortest else ROUNDS
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    print(f"NATIVE {NATIVE}; Python {platform.python_version()}; {cpu_model()}; load {load}")
    if not NATIVE:
        print("The native kernel is not built: these are the figures of its Python twin.")
    print(
        "x hash: against a C loop that only hashes the same frames; x copy: against one plain copy"
        "\nof the batch; twin x: how many times as long the Python twin takes."
    )
    for payload_bytes in PAYLOAD_SIZES:
        report(payload_bytes, rounds)


if __name__ == "__main__":
    main()
