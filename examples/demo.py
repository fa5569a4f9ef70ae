"""What there is so far: recorded frames through wire and kernel, and a cluster in one process.

Every step checks what it shows; a difference ends the demo with an error.
"""

import json
import struct
from collections import Counter
from pathlib import Path

import headrace
from headrace import kernel
from headrace.base.limits import HEADER_BYTES
from headrace.sim.outcome import Outcome
from headrace.sim.product import Product
from headrace.sim.swarm import draw_options
from headrace.sim.world import World
from headrace.wire.batches import admit_batch
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.commands.table import COMMANDS, find_command
from headrace.wire.errors import RefusedError
from headrace.wire.fields import decode_user_headers
from headrace.wire.frames import FrameCutter
from headrace.wire.requests import REQUEST, encode_request

VECTORS = Path(__file__).parent.parent / "tests" / "vectors" / "sdk-0.9.0.jsonl"
PIECE_BYTES = 1000  # as a socket might give them
ROWS_SHOWN = 4
SEED = 3


def main() -> None:
    """Run the demo."""
    print(f"Headrace {headrace.__version__}, kernel: {'native' if kernel.NATIVE else 'twin'}\n")
    stream = b"".join(bytes.fromhex(vector["request"]) for vector in read_vectors())
    frames = cut(stream)
    print(f"{len(stream):,} bytes of the released SDK in pieces of {PIECE_BYTES}:")
    print(
        f"{len(frames)} frames, {count_commands(frames)} commands, each decoded and written again"
    )
    print("to the same bytes.\n")
    log = append_batches(frames)
    show_messages(log)
    show_refusal(frames)
    show_cluster()


def read_vectors() -> list[dict[str, str]]:
    """Read the recorded frames of commands that we know."""
    with VECTORS.open() as lines:
        vectors = [json.loads(line) for line in lines]
    return [vector for vector in vectors if vector["code"] in COMMANDS]


def cut(stream: bytes) -> list[bytes]:
    """Cut the stream into frames."""
    cutter = FrameCutter()
    pieces = (stream[at : at + PIECE_BYTES] for at in range(0, len(stream), PIECE_BYTES))
    return [bytes(frame) for piece in pieces for frame in cutter.feed(piece)]


def count_commands(frames: list[bytes]) -> int:
    """Decode every frame, encode it again, compare."""
    found: Counter[str] = Counter()
    for frame in frames:
        header = REQUEST.decode(frame)
        command = find_command(header)
        body = command.encode_request(command.decode_request(frame[HEADER_BYTES:]))
        written = encode_request(
            command.operation,
            body,
            client=header.client,
            session=header.session,
            request=header.request,
            code=command.code,
        )
        if written + body != frame:
            raise SystemExit(f"{command.name}: written differently than recorded")
        found[command.name] += 1
    return len(found)


def sends(frames: list[bytes]) -> list[SendMessages]:
    """Give the sends among the frames."""
    operation = SEND_MESSAGES.operation
    return [
        SEND_MESSAGES.decode_request(frame[HEADER_BYTES:])
        for frame in frames
        if REQUEST.decode(frame).operation == operation
    ]


def append_batches(frames: list[bytes]) -> bytes:
    """Admit every batch that was sent, as one partition would, and verify the log."""
    log = bytearray()
    offset = 0
    for number, send in enumerate(sends(frames)):
        batch = bytearray(send.batch)
        admit_batch(
            batch,
            send.messages_count,
            partition_id=0,
            base_offset=offset,
            base_timestamp=1_700_000_000_000_000 + number,
        )
        kernel.verify(batch)
        log += batch
        offset += send.messages_count
    print(f"{number + 1} batches admitted and stamped: {offset} messages, {len(log):,} bytes.\n")
    return bytes(log)


def show_messages(log: bytes) -> None:
    """Turn the log into columns, as Spark will read it, and show the first rows."""
    columns = kernel.columns(log, 0, kernel.OFFSET_MAX, True)  # noqa: FBT003  # see the kernel
    offsets = struct.unpack(f"<{columns.messages_count}q", columns.offsets)
    payload_ends = struct.unpack(f"<{columns.messages_count + 1}i", columns.payload_offsets)
    header_ends = struct.unpack(f"<{columns.messages_count + 1}i", columns.header_offsets)
    rows = range(columns.messages_count)
    with_headers = [row for row in rows if header_ends[row + 1] > header_ends[row]]
    print("offset  payload                         headers")
    for row in [*rows[:ROWS_SHOWN], *with_headers[:ROWS_SHOWN]]:
        payload = bytes(columns.payloads[payload_ends[row] : payload_ends[row + 1]])
        headers = decode_user_headers(columns.headers[header_ends[row] : header_ends[row + 1]])
        told = ", ".join(f"{key.value!r}={value.value!r}" for key, value in headers[-2:])
        print(f"{offsets[row]:>6}  {payload[:30]!r:<30}  {told}".rstrip())
    print(f"   ... {columns.messages_count - 2 * ROWS_SHOWN} more\n")


def show_refusal(frames: list[bytes]) -> None:
    """Damage one byte of a batch and show what its sender would be told."""
    send = sends(frames)[0]
    damaged = bytearray(send.batch)
    damaged[-1] ^= 1
    try:
        admit_batch(damaged, send.messages_count, partition_id=0, base_offset=0, base_timestamp=0)
    except RefusedError as refusal:
        print(f"One bit flipped in the first batch: {refusal}")
    else:
        raise SystemExit("a damaged batch was admitted")


def show_cluster() -> None:
    """Run one seed of the simulator: the code that ships, on broken disks and a broken network."""
    options = draw_options(SEED)
    report = World(options, Product(options)).run()
    if report.outcome != Outcome.PASS:
        raise SystemExit(f"seed {SEED}: {report.reason}")
    events = report.events
    kills = sum(events.get(f"world.{how}", 0) for how in ("killed", "power_cut"))
    print(f"\nSeed {SEED}: {options.replica_count} replicas, {len(options.groups)} groups.")
    print(f"{kills} kills and power cuts, {events.get('network.lost', 0)} frames lost.")
    print(f"{report.committed} ops committed and answered once; all replicas agree in the end.")


if __name__ == "__main__":
    main()
