"""The node under load, beside limits that are measured in the same rounds.

Every case runs in laps, and each lap is followed by one of what it is compared with, so a neighbour
on the machine disturbs both alike; figures are medians of laps. Compare ratios, never times between
runs. Columns: messages and MB of payload per second, latency of one request, processor time of all
server processes for one request; then for each limit its value and our ratio to it.

* files: the file work alone, in the same class with as many batches on their way (`filework.py`).
* bare: the same frames to a server that cuts them and answers with 256 bytes (`bare.py`).
* copy: a raw copy over the loopback from a bare server.
* sync: a bare write and fdatasync of one message's record into a pre-written file.
* nats: JetStream with file storage in lockstep, where nats-server is installed.

    python -m bench.node [--quick | --shortest] [--only PART] [--json FILE] [--folder DIR]
                         [--server COMMAND]

A case is named like `produce/persisted/1000 x 1 KiB/1 c x 4`: section, class, batch, connections
and requests on their way on each (without: one, in lockstep). PART is part of such a name.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import machine, pagecache
from bench.cases import (
    DISK,
    EIGHT,
    LARGEST,
    LOCKSTEP,
    SHAPES,
    SINGLE,
    SIXTEEN,
    TAIL,
    name_of,
    pipelined,
    traffics,
)
from bench.frames import CLASSES, PERSISTED, REPLICATED, Shape, make_poll, make_send
from bench.load import GeneratorError, Limits, NoCompilerError, Traffic, Window
from bench.nats import NatsError
from bench.rig import FULL, QUICK, SHORTEST, Beside, Rig
from bench.rows import Row, make_row
from bench.sdk import SdkLap, measure_sdk
from bench.server import HASTY_NODE, IDLE_BYTES_MAX, LOADED_BYTES_MAX, NODE, TOY, ServerError
from bench.targets import TARGETS, Verdict, figures_of
from headrace.base.limits import GIB, MIB
from headrace.server.config.sections import JournalSection, SegmentsSection
from headrace.wire.errors import Code

WARM_BYTES = JournalSection().bytes_max * 5 // 4  # once round the journal, and some more
TAIL_BYTES = 16 * MIB  # polled from memory: the newest of a topic
TAIL_BATCHES_MAX = 4096
TOPIC_BYTES = 256 * MIB  # in a topic that is polled, and polled from disk
TOPIC_BATCHES_MAX = 16_384
EVICT_BYTES = 2 * SegmentsSection().tail_bytes_max  # sent elsewhere: memory forgets the rest
LOAD_MAX = (os.cpu_count() or 1) * 1.25  # server and generator alone keep two cores busy
OUTCOME_UNKNOWN = str(int(Code.TRANSIENT_NOT_COMMITTED))
SENDING_SECONDS_MAX = 60.0  # for what is sent to have something to poll
FREE_BYTES_MIN = 64 << 30  # the files that fill the page cache, and what all cases send

# --- Produce. ---


def prepare(rig: Rig) -> None:
    """Create the topics, and send once round the journal: its files are there then, and warm."""
    with rig.server.connect() as connection:
        connection.create_stream()
        for durability in CLASSES:
            for shape in SHAPES:
                connection.create_topic(produce_topic(durability, shape), durability)
    for durability in CLASSES:
        send_bytes(rig, f"warm-{durability}", LARGEST, durability, WARM_BYTES // 2)


def send_bytes(rig: Rig, topic: str, shape: Shape, durability: str, wanted_bytes: int) -> int:
    """Send so many bytes to a new topic; give how many batches it has then.

    What was refused is not in the topic, so the offsets have no gap; the report tells of it.

    Raises:
        GeneratorError: A send may or may not have been applied, or none was.
    """
    with rig.server.connect() as connection:
        connection.create_topic(topic, durability)
    frame = make_send(topic, shape)
    wanted_bytes = min(wanted_bytes, rig.pace.ahead_bytes_max)
    batches = max(min(wanted_bytes // len(frame), TOPIC_BATCHES_MAX), 1)
    limits = Limits(SENDING_SECONDS_MAX, batches * len(frame))
    lap = rig.generator.send(rig.server.port, frame, pipelined(shape), limits)
    rig.note_refusals(topic, lap)
    if OUTCOME_UNKNOWN in lap.statuses or lap.requests == 0:
        raise GeneratorError(f"{topic}: {lap.requests} of {batches} sends, {lap.statuses}")
    return lap.requests


def produce(rig: Rig) -> None:
    """Measure sending, in both classes."""
    for durability in CLASSES:
        rig.begin_table(f"Produce, class {durability}", ("bare MB/s", "bare p50", "files MB/s"))
        for shape in SHAPES:
            cases = [
                (name_of("produce", durability, shape, each), each) for each in traffics(shape)
            ]
            wanted = [(name, traffic) for name, traffic in cases if rig.is_wanted(name)]
            for name, traffic in wanted:
                produce_case(rig, name, shape, traffic, durability)
    rig.begin_table("NATS JetStream, file storage, lockstep, beside the above", ())
    for shape, laps in rig.nats_laps.items():
        rig.show(make_row(f"nats/{shape}", shape, laps, None))


def produce_topic(durability: str, shape: Shape) -> str:
    """Give the topic that takes batches of this shape."""
    return f"produce-{durability}-{shape.messages}-{shape.payload_bytes}"


def produce_case(rig: Rig, name: str, shape: Shape, traffic: Traffic, durability: str) -> Row:
    """Measure one case of sending, after a lap that does not count."""
    topic = produce_topic(durability, shape)
    frame = make_send(topic, shape)
    besides: list[Beside] = [
        rig.beside_bare(frame, shape, traffic),
        rig.beside_files(shape, traffic, durability),
    ]
    if durability == PERSISTED and shape == SINGLE:
        besides += single_besides(rig, topic, traffic)
    if durability == REPLICATED and traffic == LOCKSTEP and rig.nats is not None:
        besides.append(rig.beside_nats(shape))
    lapping = partial(rig.generator.send, rig.server.port, frame, traffic)
    rig.note_refusals(f"warm lap of {name}", lapping(rig.pace.beside))
    return rig.measure(name, shape, partial(lapping, rig.pace.lap), besides)


def single_besides(rig: Rig, topic: str, traffic: Traffic) -> list[Beside]:
    """Give what durable single messages are held against.

    How long a message takes depends on whether the machine sleeps between two of them, so whatever
    is subtracted or divided is measured in the same rounds.
    """
    if traffic == LOCKSTEP:
        cached = make_send(produce_topic(REPLICATED, SINGLE), SINGLE)
        return [rig.beside_sync, rig.beside_send("cached", cached, LOCKSTEP)]
    if traffic == SIXTEEN:
        return [rig.beside_send("one", make_send(topic, SINGLE), LOCKSTEP)]
    return []


def sustain(rig: Rig) -> None:
    """Send large batches for a while, in both classes: what memory does then is looked at later."""
    rig.begin_table("Sustained load", ())
    for durability in CLASSES:
        name = name_of("sustain", durability, LARGEST, EIGHT)
        if rig.is_wanted(name):
            topic = f"sustain-{durability}"
            with rig.server.connect() as connection:
                connection.create_topic(topic, durability)
            frame = make_send(topic, LARGEST)
            limits = Limits(rig.pace.sustained_seconds, 8 * GIB)
            lap = rig.generator.send(rig.server.port, frame, EIGHT, limits)
            rig.keep(make_row(name, LARGEST, [lap], None))


# --- Consume. ---


def consume_tail(rig: Rig) -> dict[Shape, int]:
    """Measure polls of what was just sent; give how many batches each topic has."""
    rig.begin_table("Consume from the memory tail", ("copy MB/s", "bare p50"))
    sent = {}
    for shape in SHAPES:
        names = [
            name_of("consume", kind, shape, each)
            for kind in (TAIL, DISK)
            for each in traffics(shape)
        ]
        if any(map(rig.is_wanted, names)):
            topic = consume_topic(shape)
            batches = send_bytes(rig, topic, shape, REPLICATED, TOPIC_BYTES)
            sent[shape] = batches
            newest = min(max(TAIL_BYTES // (shape.bytes or 1), 1), TAIL_BATCHES_MAX, batches)
            consume_cases(rig, TAIL, shape, Window(batches - newest, batches))
    return sent


def consume_disk(rig: Rig, sent: dict[Shape, int]) -> None:
    """Measure polls of what the server no longer has in memory: it was started anew since."""
    names = [name_of("consume", DISK, shape, each) for shape in sent for each in traffics(shape)]
    if not any(map(rig.is_wanted, names)):
        return
    send_bytes(rig, "evict", LARGEST, REPLICATED, EVICT_BYTES)
    seconds = rig.restart_server()
    print(f"\nStarted again: a login succeeded after {seconds:.2f} s")
    rig.begin_table("Consume from disk, verified, after a restart", ("copy MB/s", "bare p50"))
    for shape, batches in sent.items():
        consume_cases(rig, DISK, shape, Window(0, batches))


def consume_topic(shape: Shape) -> str:
    """Give the topic whose batches have this shape."""
    return f"consume-{shape.messages}-{shape.payload_bytes}"


def consume_cases(rig: Rig, kind: str, shape: Shape, batches: Window) -> None:
    """Measure polls of one shape, batch after batch, round and round within some batches."""
    poll = make_poll(consume_topic(shape), shape)
    window = Window(batches.first * shape.messages, batches.last * shape.messages)
    for traffic in traffics(shape):
        name = name_of("consume", kind, shape, traffic)
        if rig.is_wanted(name):
            lapping = partial(
                rig.generator.poll, rig.server.port, poll, shape, window, traffic, rig.pace.lap
            )
            bare = rig.beside_bare_latency(poll.frame, traffic)
            rig.measure(name, shape, lapping, [rig.beside_copy, bare])


# --- The released SDK. ---


def measure_released_sdk(rig: Rig) -> None:
    """Measure sending and polling through the released SDK."""
    rig.begin_table("The released SDK, one call after another", ())
    for durability in CLASSES:
        for shape in SHAPES:
            names = [f"sdk/{verb}/{durability}/{shape}" for verb in ("produce", "consume")]
            if any(map(rig.is_wanted, names)):
                topic = f"sdk-{durability}-{shape.messages}-{shape.payload_bytes}"
                with rig.server.connect() as connection:
                    connection.create_topic(topic, durability)
                laps = measure_sdk(rig.server.port, rig.account, topic, shape, rig.pace.lap.seconds)
                for name, lap in zip(names, laps, strict=True):
                    rig.keep(sdk_row(name, shape, lap))


def sdk_row(name: str, shape: Shape, lap: SdkLap) -> Row:
    """Give the row of a lap through the SDK."""
    return Row(name, shape, lap.rate, lap.p50_us, lap.p99_us)


# --- Memory. ---


def measure_memory(rig: Rig, what: str) -> float:
    """Print the memory of the server's processes; give that of the largest, in MiB."""
    print(f"\nMemory, {what}")
    memories = rig.server.memory()
    for memory in memories:
        print(f"{memory.resident / MIB:8.1f} MiB, at most {memory.peak / MIB:8.1f}  {memory.name}")
    return max(memory.resident if what == "idle" else memory.peak for memory in memories) / MIB


# --- The run. ---


def measure_limits(rig: Rig) -> None:
    """Print what the machine can do; the same stands beside the cases that it limits."""
    to_sink = rig.generator.copy(rig.bare.port("sink"), rig.pace.beside, is_sending=True)
    from_source = rig.generator.copy(rig.bare.port("source"), rig.pace.beside, is_sending=False)
    sync = rig.sync_file.run(rig.pace.beside.seconds)
    print(
        f"loopback copy to a bare server {to_sink.copied_rate / 1e6:,.0f} MB/s,"
        f" from one {from_source.copied_rate / 1e6:,.0f} MB/s;"
        f" write + fdatasync p50 {sync.p50_us:.0f} us, p99 {sync.p99_us:.0f} us"
    )


def run(rig: Rig) -> list[Verdict]:
    """Run all sections; give the verdicts."""
    measure_limits(rig)
    time.sleep(rig.pace.settle_seconds)
    memory = {
        "idle memory allowed": IDLE_BYTES_MAX / MIB,
        "idle memory": measure_memory(rig, "idle"),
    }
    prepare(rig)
    produce(rig)
    sustain(rig)
    sent = consume_tail(rig)
    memory["loaded memory"] = measure_memory(rig, "under load")
    memory["loaded memory allowed"] = LOADED_BYTES_MAX / MIB
    measure_released_sdk(rig)
    consume_disk(rig, sent)
    figures = figures_of(rig.rows) | memory
    return [target.judge(figures) for target in TARGETS]


def find_doubts(*, is_quick: bool, is_filled: bool, loads: Sequence[float]) -> list[str]:
    """Say what about the run makes its figures, and so its verdicts, less than a result."""
    doubts = []
    if is_quick:
        doubts.append("short laps, one of each")
    if not is_filled:
        doubts.append("the page cache was not full: new pages may be several times too slow")
    if max(loads) > LOAD_MAX:
        doubts.append(f"load average up to {max(loads):.1f}: others used the machine, or we did")
    return doubts


def report(rig: Rig, verdicts: list[Verdict], doubts: list[str], file: Path | None) -> int:
    """Print where we stand, write all figures to a file if one is named; give the errors."""
    print("\nTargets: ratio, what is wanted, of what")
    for verdict in verdicts:
        print(verdict)
    for doubt in doubts:
        print(f"doubtful: {doubt}")
    errors = sum(row.errors for row in rig.rows.values())
    print(f"\n{len(rig.rows)} cases, {errors} errors; load average {machine.load_average():.2f}")
    for name, statuses in rig.refusals.items():
        print(f"refused outside the cases: {name} {statuses}")
    if rig.nats is None:
        print("nats-server is not installed: nothing was measured beside it")
    if file is not None:
        told = {
            "machine": machine.describe(),
            "doubts": doubts,
            "rows": [row.as_json() for row in rig.rows.values()],
            "refusals": rig.refusals,
            "targets": [verdict.as_json() for verdict in verdicts],
        }
        file.write_text(json.dumps(told, indent=1) + "\n")
    return errors + len(rig.refusals)


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.node", description=__doc__.split("\n")[0]
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="short laps, for a look")
    length.add_argument("--shortest", action="store_true", help="tiny laps: whether it runs")
    parser.add_argument(
        "--only", default="", metavar="PART", help="cases whose name has this in it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="on the disk to be measured")
    parser.add_argument(
        "--fill", action=argparse.BooleanOptionalAction, help="the page cache first; not if quick"
    )
    parser.add_argument("--server", help="command of the server, or `toy` to try the bench itself")
    return parser.parse_args()


def command_of(options: argparse.Namespace) -> str:
    """Return the command of the server."""
    if options.server is None:
        return HASTY_NODE if options.shortest else NODE
    return TOY if options.server == "toy" else str(options.server)


def main() -> None:
    """Print the conditions, then the figures."""
    options = read_options()
    print(machine.describe())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=options.folder)))
        loads = [machine.load_average()]
        is_quick = options.quick or options.shortest
        is_filled = not is_quick if options.fill is None else options.fill
        free_bytes = shutil.disk_usage(folder).free
        if not is_quick and not options.only and free_bytes < FREE_BYTES_MIN:
            sys.exit(
                f"all cases write up to {FREE_BYTES_MIN >> 30} GiB, and {folder.parent} has "
                f"{free_bytes >> 30} GiB free; --folder takes another place, --quick less of it"
            )
        if is_filled:
            filled = pagecache.fill(folder)
            print(filled, flush=True)
            is_filled = filled.is_full
        pace = SHORTEST if options.shortest else QUICK if options.quick else FULL
        try:
            rig = stack.enter_context(Rig(folder, command_of(options), pace, only=options.only))
            verdicts = run(rig)
        except NoCompilerError as error:
            print(f"skipped: {error}")
            return
        except (GeneratorError, NatsError, ServerError) as error:
            sys.exit(f"the benchmark ended: {error}")
        loads.append(machine.load_average())
        doubts = find_doubts(is_quick=is_quick, is_filled=is_filled, loads=loads)
        if report(rig, verdicts, doubts, options.json):
            sys.exit("requests failed: the figures of their cases are none")


if __name__ == "__main__":
    main()
