"""Malformed bytes through every decoder: a clean refusal, never another exception.

CL1 asks for 200,000 frames with every commit. Each starts from a good one, so that most of them
get past the first check; `make test` runs this lane, the fast tests run a taste of it.
"""

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.wire.batches import split_batches
from headrace.wire.codec import decode, encode
from headrace.wire.commands.table import COMMANDS, find_command
from headrace.wire.errors import CorruptError, RefusedError, RemoteError
from headrace.wire.evictions import (
    EvictedError,
    EvictionReason,
    decode_eviction,
    encode_eviction,
)
from headrace.wire.fields import decode_user_headers, encode_user_headers, make_field
from headrace.wire.frames import FrameCutter
from headrace.wire.numbers import Operation
from headrace.wire.options import OPTIONS, make_options
from headrace.wire.permissions import PERMISSIONS
from headrace.wire.replica.artifacts import (
    Artifact,
    ClientEntry,
    decode_client_table,
    decode_manifest,
    encode_client_table,
    encode_manifest,
)
from headrace.wire.replica.decode import decode_replica, decode_suffix
from headrace.wire.replica.handshake import CHALLENGE, FINISH, HELLO, HandshakeHeader
from headrace.wire.replica.kinds import LAYOUTS
from headrace.wire.replica.seals import seal
from headrace.wire.replies import encode_reply, read_answer
from headrace.wire.requests import REQUEST, RequestHeader, check_body, encode_request
from headrace.wire.segment import SegmentHeader, decode_segment_header, encode_segment_header
from tests.wire.samples import INTERNAL_SAMPLES, SAMPLES
from tests.wire.test_replicas import lawful
from tests.wire.test_values import GOLDEN_PERMISSIONS_BYTES

Target = Callable[[bytes], object]
REFUSALS = (RefusedError, RemoteError, EvictedError, CorruptError)
EDGES = (0, 1, 2, 254, 255, 256, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)


def read_request(frame: bytes) -> object:
    header = REQUEST.decode(frame)
    command = find_command(header)
    body = frame[HEADER_BYTES:]
    with suppress(RefusedError):
        check_body(header, body)  # Damage stops here; go on to see what the decoder does with it.
    return command.decode_request(body)


def read_stream(data: bytes) -> object:
    cutter = FrameCutter(frame_bytes_max=4096)
    frames = [bytes(frame) for piece in (data[:100], data[100:]) for frame in cutter.feed(piece)]
    assert cutter.held <= 4096
    return frames


def with_checksum(decoder: Target, start: int = 0) -> Target:
    """Decode with the last eight bytes set right, so that damage behind the checksum is reached."""

    def target(data: bytes) -> object:
        covered = data[:-8]
        return decoder(covered + xxh3_64(covered[start:]).to_bytes(8, "little"))

    return target


def sealed(data: bytes) -> object:
    header = data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
    return decode_replica(seal(header) + data[HEADER_BYTES:])


def reply_decoders() -> list[tuple[Target, bytes]]:
    return [
        (COMMANDS[code].decode_reply, COMMANDS[code].encode_reply(reply))
        for code, (_, reply) in SAMPLES.items()
    ]


def request_frames() -> list[tuple[Target, bytes]]:
    frames: list[tuple[Target, bytes]] = []
    for code, (request, _) in SAMPLES.items():
        command = COMMANDS[code]
        number = 0 if command.operation == Operation.REGISTER else 1
        body = command.encode_request(request)
        header = encode_request(
            command.operation, body, client=9, session=number, request=number, code=code
        )
        frames.append((read_request, header + body))
    return frames


def corpus() -> list[tuple[Target, bytes]]:
    """Give every decoder with a good input for it."""
    headers = encode_user_headers(
        [(make_field("k"), make_field(7)), (make_field(1), make_field(b"v"))]
    )
    options = encode(OPTIONS, make_options({"a": 1, "b": "text", "c": True}))
    answer = encode_reply(RequestHeader(client=1, operation=128), bytes(4) + b"payload")
    client = ClientEntry(
        client=1, epoch=2, user_id=3, watermark=4, watermark_checksum=5, replies=(b"reply", b"")
    )
    segment = SegmentHeader(namespace=5, created_revision=1, history_epoch=0, base_offset=9)
    suffix = lawful(6)[:HEADER_BYTES] + bytes(HEADER_BYTES)
    return [
        *request_frames(),
        *reply_decoders(),
        *[(partial(decode, codec), encode(codec, value)) for codec, value in INTERNAL_SAMPLES],
        *[(sealed, lawful(kind)) for kind in sorted(LAYOUTS)],
        *[(decode_replica, lawful(kind)) for kind in sorted(LAYOUTS)],
        *[
            (layout.decode, layout.encode(HandshakeHeader()))
            for layout in (HELLO, CHALLENGE, FINISH)
        ],
        (read_stream, answer * 3),
        (read_answer, answer),
        (decode_eviction, encode_eviction(EvictionReason.INCOMPATIBLE_PROTOCOL, 5)),
        (decode_user_headers, headers),
        (partial(decode, OPTIONS), options),
        (partial(decode, PERMISSIONS), GOLDEN_PERMISSIONS_BYTES),
        (decode_suffix, suffix),
        (lambda data: list(split_batches(data)), bytes(32) + b"\0\1" + bytes(222)),
        (with_checksum(decode_manifest), encode_manifest((Artifact(1, 2, 3, 4),))),
        (with_checksum(decode_client_table), encode_client_table((client,))),
        (with_checksum(decode_segment_header), encode_segment_header(segment)),
    ]


def mutate(chance: random.Random, good: bytes) -> bytes:
    """Damage a good input in one to three ways."""
    data = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[position : position + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[position:]
            case 2:
                data[position:position] = chance.randbytes(chance.randrange(1, 40))
            case 3:
                data[position : position + 4] = chance.choice(EDGES).to_bytes(4, "little")
            case 4:
                data[position : position + 1] = bytes([chance.choice((0, 1, 2, 4, 127, 255))])
            case _:
                del data[position : position + chance.randrange(1, 9)]
    return bytes(data)


def run(inputs: int, seed: int) -> tuple[int, int]:
    """Feed that many malformed inputs; give how many were read and how many refused."""
    chance = random.Random(seed)
    targets = corpus()
    read = refused = 0
    for number in range(inputs):
        decoder, good = targets[number % len(targets)]
        try:
            decoder(mutate(chance, good))
            read += 1
        except REFUSALS:
            refused += 1
    return read, refused


def test_every_command_has_a_sample() -> None:
    assert SAMPLES.keys() == COMMANDS.keys()


def test_every_good_input_is_read() -> None:
    """Otherwise the damage would prove nothing."""
    for decoder, good in corpus():
        decoder(good)


def test_a_taste_of_malformed_input() -> None:
    read, refused = run(5_000, seed=1)
    assert read > 500
    assert refused > 500


@pytest.mark.slow
def test_200_000_malformed_inputs() -> None:
    """Share: wire and kernel, about 10 s."""
    read, refused = run(200_000, seed=2)
    assert read + refused == 200_000
    assert min(read, refused) > 20_000


@pytest.mark.slow
def test_no_malformed_input_allocates_more_than_it_is_worth() -> None:
    """CL1: memory stays within a small multiple of the bytes that came."""
    chance = random.Random(3)
    targets = corpus()
    tracemalloc.start()
    try:
        for number in range(6_000):
            decoder, good = targets[number % len(targets)]
            data = mutate(chance, good)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with suppress(*REFUSALS):
                decoder(data)
            assert tracemalloc.get_traced_memory()[1] - before < 64 * len(data) + 65_536
    finally:
        tracemalloc.stop()
