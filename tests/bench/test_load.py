"""The load generator against the bare servers: what it counts, and what it refuses to count."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import machine
from bench.filework import FileWork, SyncFile
from bench.frames import (
    CLASSES,
    PERSISTED,
    REPLICATED,
    Account,
    Connection,
    Shape,
    make_batch,
    make_poll,
    make_send,
    make_sends,
)
from bench.load import (
    Generator,
    GeneratorError,
    Limits,
    NoCompilerError,
    Traffic,
    Window,
    compile_program,
    read_lap,
)
from bench.nats import Nats, find_nats
from bench.sdk import measure_sdk
from headrace.wire.requests import REQUEST

pytestmark = pytest.mark.slow

ACCOUNT = Account("iggy", "iggy")
TOPIC = "orders"
LAP = Limits(0.05)

Start = Callable[[str], int]


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    try:
        return Generator(tmp_path_factory.mktemp("load"), ACCOUNT)
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def start() -> Iterator[Start]:
    processes = []

    def start_one(kind: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.bare", kind], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline())

    yield start_one
    for process in processes:
        process.terminate()
        process.communicate()
        assert process.returncode == 0


def prepare(port: int, durability: str = PERSISTED) -> None:
    with Connection(port, ACCOUNT) as connection:
        connection.create_stream()
        connection.create_topic(TOPIC, durability)


@pytest.mark.parametrize("traffic", [Traffic(1, 1), Traffic(8, 1), Traffic(1, 32), Traffic(3, 4)])
@pytest.mark.parametrize("shape", [Shape(1, 100), Shape(1000, 1024)], ids=str)
def test_every_request_gets_its_reply(
    generator: Generator, start: Start, shape: Shape, traffic: Traffic
) -> None:
    port = start("toy")
    prepare(port)
    frame = make_send(TOPIC, shape)
    lap = generator.send(port, frame, traffic, Limits(5, 40 * len(frame)))
    assert (lap.requests, lap.errors) == (40, 0)
    assert lap.sent_bytes == 40 * len(frame)
    assert 0 < lap.p50_us <= lap.p99_us <= lap.p999_us
    assert lap.p50_us <= lap.max_us
    window = Window(0, 7 * shape.messages)
    polled = generator.poll(port, make_poll(TOPIC, shape), shape, window, traffic, LAP)
    assert polled.requests > 0
    assert polled.errors == 0
    assert polled.received_bytes > polled.requests * shape.bytes


@pytest.mark.parametrize("shape", [Shape(1, 100), Shape(1000, 100)], ids=str)
def test_each_connection_sends_its_own_frame(
    generator: Generator, start: Start, shape: Shape
) -> None:
    """One of them sends a command that the toy does not know."""
    port = start("toy")
    prepare(port)
    frames = [bytearray(frame) for frame in make_sends(TOPIC, shape, (0, 1, 2))]
    frames[1][REQUEST.at("operation")] = 161
    lap = generator.send_each(port, frames, Traffic(3, 1), Limits(5, 30 * len(frames[0])))
    assert lap.requests + lap.errors == 30
    assert lap.statuses.keys() == {"5"}
    assert 0 < lap.errors < 30


def test_frames_of_connections_are_one_but_for_their_beginnings(generator: Generator) -> None:
    frames = [bytearray(frame) for frame in make_sends(TOPIC, Shape(10, 100), (0, 1, 2))]
    frames[1][-1] ^= 1
    with pytest.raises(GeneratorError, match="frame 1 differs behind its beginning"):
        generator.send_each(1, frames, Traffic(3, 1), LAP)
    with pytest.raises(GeneratorError, match="frames=3 in"):
        generator.send_each(1, [*frames[:2], frames[2] + b"x"], Traffic(3, 1), LAP)


def test_a_lap_ends_in_time(generator: Generator, start: Start) -> None:
    port = start("echo")
    lap = generator.echo(port, make_send(TOPIC, Shape(1, 100)), Traffic(1, 1), Limits(0.1))
    assert 0.1 <= lap.seconds < 5
    assert lap.requests > 1


def test_a_lap_whose_time_is_over_at_once_sends_something(
    generator: Generator, start: Start, tmp_path: Path
) -> None:
    frame = make_send(TOPIC, Shape(1, 100))
    lap = generator.echo(start("echo"), frame, Traffic(2, 1), Limits(0))
    assert lap.requests >= 1
    batch = make_batch(Shape(1, 100))
    with FileWork(tmp_path / "files") as work:
        for durability in CLASSES:
            done = work.run(batch, Limits(0), in_flight=4, turn=2, durability=durability)
            assert done.batches >= 1


def test_a_status_is_an_error_and_no_request(generator: Generator, start: Start) -> None:
    port = start("toy")
    frame = bytearray(make_send(TOPIC, Shape(1, 100)))
    frame[REQUEST.at("operation")] = 161  # a command that the toy does not know
    lap = generator.send(port, bytes(frame), Traffic(2, 2), Limits(5, 10 * len(frame)))
    assert (lap.requests, lap.statuses, lap.errors) == (0, {"5": 10}, 10)
    assert lap.sent_bytes == 0


def test_a_poll_that_gives_something_else_is_wrong(generator: Generator, start: Start) -> None:
    port = start("toy")
    prepare(port)
    poll = make_poll(TOPIC, Shape(10, 100))
    limits = Limits(5, 6 * len(poll.frame))
    window = Window(0, 100)
    empty = generator.poll(port, poll, Shape(10, 100), window, Traffic(1, 1), limits)
    assert (empty.requests, empty.wrong) == (0, 6)
    sent = make_send(TOPIC, Shape(20, 100))
    generator.send(port, sent, Traffic(1, 1), Limits(5, len(sent)))
    other = generator.poll(port, poll, Shape(10, 100), window, Traffic(1, 1), limits)
    assert (other.requests, other.wrong) == (0, 6)


def test_a_run_is_held_between_its_logins_and_its_requests(
    generator: Generator, start: Start
) -> None:
    port = start("toy")
    prepare(port)
    frame = make_send(TOPIC, Shape(1, 100))
    seen: list[str] = []
    generator.on_ready = lambda: seen.append("ready")
    try:
        lap = generator.send(port, frame, Traffic(2, 1), Limits(5, 4 * len(frame)))
        with pytest.raises(GeneratorError, match="cannot connect"):
            generator.send(1, frame, Traffic(2, 1), LAP)
    finally:
        generator.on_ready = None
    assert seen == ["ready"]
    assert lap.requests == 4


def test_closed_connections_leave_no_buffers_behind(start: Start) -> None:
    port = start("toy")
    for _ in range(60):
        Connection(port, ACCOUNT).close()
    memories = [machine.memory_of(pid) for pid in machine.family_of(os.getpid())]
    toys = [memory for memory in memories if memory is not None and "bare toy" in memory.name]
    assert len(toys) == 1
    assert toys[0].peak < 100 << 20


def test_a_server_without_a_login_ends_the_run(generator: Generator, start: Start) -> None:
    port = start("echo")
    with pytest.raises(GeneratorError, match="login reply of 256 bytes"):
        generator.send(port, make_send(TOPIC, Shape(1, 100)), Traffic(1, 1), LAP)


def test_nobody_there_ends_the_run(generator: Generator) -> None:
    with pytest.raises(GeneratorError, match="cannot connect"):
        generator.echo(1, make_send(TOPIC, Shape(1, 100)), Traffic(1, 1), LAP)


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("connections=0", "connections=0, allowed 1 to 256"),
        ("depth=5000", "depth=5000, allowed 1 to 1024"),
        ("depth=x", "depth=x is not a number"),
        ("port=0", "port 0 is out of range"),
        ("offset_at=9999", "outside the frame's beginning"),
    ],
)
def test_arguments_out_of_range_are_refused(tmp_path: Path, argument: str, sentence: str) -> None:
    try:
        program = compile_program("load.c", tmp_path)
    except NoCompilerError as error:
        pytest.skip(str(error))
    frame = tmp_path / "frame"
    frame.write_bytes(make_send(TOPIC, Shape(1, 100)))
    with pytest.raises(GeneratorError, match=sentence):
        read_lap(program, "mode=requests", argument, "port=1", f"frame={frame}")


@pytest.mark.parametrize(("kind", "is_sending"), [("sink", True), ("source", False)])
def test_a_copy_counts_bytes(
    generator: Generator, start: Start, kind: str, is_sending: bool
) -> None:
    lap = generator.copy(start(kind), Limits(5, 8 << 20), is_sending=is_sending)
    counted = lap.sent_bytes if is_sending else lap.received_bytes
    assert 8 << 20 <= counted <= 9 << 20
    assert lap.copied_rate == counted / lap.seconds


def test_the_released_sdk_drives_the_toy(start: Start) -> None:
    port = start("toy")
    prepare(port, REPLICATED)
    laps = measure_sdk(port, ACCOUNT, TOPIC, Shape(10, 100), 0.05)
    assert laps.produced.calls > 0
    assert laps.consumed.calls > 0


@pytest.mark.parametrize("durability", CLASSES)
def test_file_work_writes_ring_and_segment(tmp_path: Path, durability: str) -> None:
    shape = Shape(100, 1024)
    batch = make_batch(shape)
    with FileWork(tmp_path / "files") as work:
        limits = Limits(10, 50 * len(batch))
        lap = work.run(batch, limits, in_flight=4, turn=1, durability=durability)
    assert lap.batches == 50
    assert 0 < lap.p50_us <= lap.p99_us
    stored = (tmp_path / "files" / "segment.0").read_bytes()
    assert stored[4096:] == batch * 50
    journal = (tmp_path / "files" / "journal.0").read_bytes()
    assert journal.count(batch) == 50


def test_a_bare_sync_takes_time(tmp_path: Path) -> None:
    bare = SyncFile(tmp_path, 896)
    lap = bare.run(0.05)
    bare.close()
    assert lap.batches >= 2
    assert 0 < lap.p50_us <= lap.p99_us


def test_nats_acknowledges_every_message(tmp_path: Path) -> None:
    program = find_nats()
    if program is None:
        pytest.skip("nats-server is not installed")
    with Nats(program, tmp_path) as nats:
        for shape in (Shape(1, 100), Shape(1000, 1024)):
            lap = nats.publish(shape, LAP)
            assert lap.requests > 0
            assert lap.sent_bytes > lap.requests * shape.bytes
