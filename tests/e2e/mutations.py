"""Wrong frames made from right ones: every command, every field, in every state of a session.

A shot is a frame and whether its framing is right. One that is framed right must be answered, or
its connection must close; one that is not may leave the node waiting for the rest.

Everything is drawn from one seeded generator: the same seed, the same shots.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headrace.base.checksum import xxh3_64
from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.base.prng import Prng
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.wire.commands.messages import SEND_MESSAGES, SendMessages
from headrace.wire.commands.table import COMMANDS
from headrace.wire.identifiers import Balanced, ToPartition
from headrace.wire.numbers import Operation
from headrace.wire.requests import REQUEST, encode_request
from tests.wire.samples import SAMPLES

VECTORS = Path(__file__).parents[1] / "vectors" / "sdk-0.9.0.jsonl"

# Fields of the header, by where they lie.
KIND = (60, 1)
CLIENT = (128, 16)
BODY_CHECKSUM = (144, 16)
REQUEST_NUMBER = (168, 8)
OPERATION = (176, 1)
SESSION = (184, 8)
CODE = (196, 4)
SIZE = (48, 4)
OTHERS = ((0, 16), (16, 16), (32, 16), (52, 4), (56, 4), (61, 1), (62, 66), (160, 8), (177, 7),
          (192, 4), (200, 48), (248, 8))  # fmt: skip

EDGES = (0, 1, 2**31, 2**32 - 1, 2**64 - 1)


# In a body that is sent as another command a password may become a name, and names are stored.
# So what shots carry is none of the secrets that the node's files are searched for.
OPEN_WORD = (b"secret-", b"openly-")


class Seed(NamedTuple):
    """A right request, without a session."""

    code: int
    operation: Operation
    body: bytes


class Speaker(NamedTuple):
    """Who sends: the numbers that make a request one of a session."""

    client: int
    session: int
    request: int


class Shot(NamedTuple):
    """A frame, what was done to it, and whether its framing is right."""

    what: str
    frame: bytes
    is_framed: bool = True


def make_seeds() -> list[Seed]:
    """Give right requests of every command: our samples and what the released SDK sent."""
    seeds = [
        Seed(code, COMMANDS[code].operation, COMMANDS[code].encode_request(sample))
        for code, (sample, _) in SAMPLES.items()
    ]
    for line in VECTORS.read_text().splitlines():
        vector = json.loads(line)
        frame = bytes.fromhex(vector["request"])
        operation = Operation(REQUEST.decode(frame).operation)
        seeds.append(Seed(vector["code"], operation, frame[HEADER_BYTES:]))
    assert {seed.code for seed in seeds} >= set(COMMANDS)
    return [seed._replace(body=seed.body.replace(*OPEN_WORD)) for seed in seeds]


class Shooter:
    """Draws shots: some are right, most have one thing wrong."""

    def __init__(self, prng: Prng) -> None:
        self._prng = prng
        self._seeds = make_seeds()
        # Each edge in every place where a length may lie, all of them in turn.
        self._edges = [
            (seed, (start, width), value)
            for seed in self._seeds[: len(SAMPLES)]
            for width in (1, 4, 8)
            for start in range(len(seed.body) - width + 1)
            for value in EDGES
        ]
        prng.shuffle(self._edges)
        self._edge = 0

    def shoot(self, speaker: Speaker) -> Shot:
        """Draw one shot."""
        if self._prng.chance(1, 6):
            return self._shoot_edge(speaker)
        seed = self._prng.choice(self._seeds)
        mutate = self._prng.choice(MUTATIONS)
        shot = mutate(self._prng, seed, speaker)
        return shot._replace(what=f"{seed.code} {mutate.__name__} {shot.what}")

    def _shoot_edge(self, speaker: Speaker) -> Shot:
        seed, (start, width), value = self._edges[self._edge % len(self._edges)]
        self._edge += 1
        body = _set(seed.body, (start, width), value)
        what = f"{seed.code} with {value} in {width} bytes at {start}"
        return Shot(what, _right(seed, speaker, body))


def _right(seed: Seed, speaker: Speaker, body: bytes | None = None) -> bytes:
    body = seed.body if body is None else body
    is_login = seed.operation == Operation.REGISTER
    header = encode_request(
        seed.operation,
        body,
        client=speaker.client,
        session=0 if is_login else speaker.session,
        request=0 if is_login else speaker.request,
        code=seed.code,
    )
    return header + body


def _set(data: bytes, field: tuple[int, int], value: int) -> bytes:
    start, width = field
    wrapped = value % (1 << 8 * width)
    return data[:start] + wrapped.to_bytes(width, "little") + data[start + width :]


# --- What is done to a frame. ---


def nothing(_: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Leave it right."""
    return Shot("", _right(seed, speaker))


def flipped_bits(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Flip bits of the body; its checksum is right for what it has become."""
    body = bytearray(seed.body)
    for _ in range(prng.between(1, 8)):
        if body:
            body[prng.below(len(body))] ^= 1 << prng.below(8)
    return Shot(body.hex(), _right(seed, speaker, bytes(body)))


def flipped_anywhere(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Flip one bit of header or body, but not of the size."""
    frame = bytearray(_right(seed, speaker))
    position = prng.below(len(frame))
    while SIZE[0] <= position < SIZE[0] + SIZE[1]:
        position = prng.below(len(frame))
    frame[position] ^= 1 << prng.below(8)
    return Shot(f"at {position}", bytes(frame))


def cut_body(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """End the body early; the size says so."""
    length = prng.below(len(seed.body) + 1)
    return Shot(f"to {length} bytes", _right(seed, speaker, seed.body[:length]))


def longer_body(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Go on after the end of the body; the size says so."""
    more = prng.bytes(prng.between(1, 300))
    return Shot(f"by {len(more)} bytes", _right(seed, speaker, seed.body + more))


def random_body(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Replace the body."""
    body = prng.bytes(prng.below(600))
    return Shot(body.hex(), _right(seed, speaker, body))


def wrong_operation(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Ask for something else with this body."""
    value = prng.below(256)
    return Shot(str(value), _set(_right(seed, speaker), OPERATION, value))


def wrong_code(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Ask for another read with this body."""
    codes = [*COMMANDS, 38, 44, 9999, 99_999, *EDGES]
    value = prng.choice(codes)
    frame = _set(_right(seed, speaker), OPERATION, Operation.NON_REPLICATED)
    return Shot(str(value), _set(frame, CODE, value))


def wrong_kind(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Send what only servers send, or nobody."""
    value = prng.choice([*range(32), 255])
    return Shot(str(value), _set(_right(seed, speaker), KIND, value))


def wrong_session(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Speak for a session that is over, or was never there."""
    value = prng.choice((0, 1, speaker.session - 1, speaker.session + 1, 2**64 - 1))
    return Shot(str(value), _set(_right(seed, speaker), SESSION, value))


def wrong_request(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Use a number again, or one that nobody reaches."""
    value = prng.choice((0, 1, speaker.request - 1, speaker.request - 200, 2**63, 2**64 - 1))
    return Shot(str(value), _set(_right(seed, speaker), REQUEST_NUMBER, value))


def wrong_client(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Speak for another client, or for none."""
    value = prng.choice((0, 1, speaker.client + 1, 2**128 - 1))
    return Shot(str(value), _set(_right(seed, speaker), CLIENT, value))


def wrong_body_checksum(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Carry a checksum of something else."""
    value = prng.choice((1, 2**64, 2**128 - 1))
    return Shot(str(value), _set(_right(seed, speaker), BODY_CHECKSUM, value))


def unused_fields(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Fill what clients leave zero."""
    start, width = prng.choice(OTHERS)
    value = int.from_bytes(prng.bytes(width), "little")
    return Shot(f"at {start}", _set(_right(seed, speaker), (start, width), value))


def wrong_size(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Say another size than the frame has."""
    frame = _right(seed, speaker)
    value = prng.choice(
        (0, 1, HEADER_BYTES - 1, len(frame) - 1, len(frame) + 1, len(frame) + 256, 1 << 16,
         (1 << 16) + 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1)
    )  # fmt: skip
    return Shot(str(value), _set(frame, SIZE, value), is_framed=False)


def cut_frame(prng: Prng, seed: Seed, speaker: Speaker) -> Shot:
    """Stop in the middle of a frame."""
    frame = _right(seed, speaker)
    length = prng.below(len(frame))
    return Shot(f"to {length} bytes", frame[:length], is_framed=False)


def noise(prng: Prng, _: Seed, __: Speaker) -> Shot:
    """Send what never was a frame."""
    return Shot("", prng.bytes(prng.between(1, 1000)), is_framed=False)


def odd_batch(prng: Prng, _: Seed, speaker: Speaker) -> Shot:
    """Send messages that contradict each other, under checksums that are right or wrong."""
    what, batch, count = draw_batch(prng)
    targets: list[Balanced | ToPartition] = [ToPartition(0), ToPartition(2**32 - 1), Balanced()]
    target = prng.choice(targets)
    request = SendMessages("shop", "orders", target, count, memoryview(batch))
    seed = Seed(101, Operation.SEND_MESSAGES, SEND_MESSAGES.encode_request(request))
    return Shot(what, _right(seed, speaker))


def draw_batch(prng: Prng) -> tuple[str, bytes, int]:
    """Give a batch of a few messages with one thing wrong, and the count that its request says."""
    count = prng.between(1, 4)
    where = prng.below(count)
    wrong = prng.choice(
        ("nothing", "delta", "headers length", "payload length", "reserved", "frame checksum",
         "batch checksum", "batch length", "batch count", "request count", "stamps", "no messages")
    )  # fmt: skip
    edge = prng.choice(EDGES)
    frames = []
    for index in range(0 if wrong == "no messages" else count):
        is_here = index == where
        payload = prng.bytes(prng.between(1, 40))
        fields = {
            "delta": index,
            "headers length": 0,
            "payload length": len(payload),
            "reserved": 0,
        }
        if is_here and wrong in fields:
            fields[wrong] = edge % 2**32
        rest = struct.pack("<QQIIIIQ", index, 0, fields["delta"], 0, fields["headers length"],
                           fields["payload length"], fields["reserved"]) + payload  # fmt: skip
        checksum = xxh3_64(rest) ^ (is_here and wrong == "frame checksum")
        frames.append(struct.pack("<Q", checksum) + rest)
    length = BATCH_HEADER_BYTES + sum(map(len, frames))
    header = bytearray(BATCH_HEADER_BYTES)
    stamps = (edge, edge, edge) if wrong == "stamps" else (0, 0, 0)
    struct.pack_into("<4QQ", header, 0, *stamps, 1, edge if wrong == "batch length" else length)
    struct.pack_into("<I", header, 48, edge % 2**32 if wrong == "batch count" else len(frames))
    hashed = header[:40] + header[48:52] + b"".join(frame[:8] for frame in frames)
    checksum = xxh3_64(bytes(hashed)) ^ (wrong == "batch checksum")
    struct.pack_into("<Q", header, 40, checksum)
    said = edge % 2**32 if wrong == "request count" else len(frames)
    return f"{wrong} {edge}", bytes(header) + b"".join(frames), said


MUTATIONS: tuple[Callable[[Prng, Seed, Speaker], Shot], ...] = (
    nothing,
    flipped_bits,
    flipped_anywhere,
    cut_body,
    longer_body,
    random_body,
    wrong_operation,
    wrong_code,
    wrong_kind,
    wrong_session,
    wrong_request,
    wrong_client,
    wrong_body_checksum,
    unused_fields,
    wrong_size,
    cut_frame,
    noise,
    odd_batch,
)
