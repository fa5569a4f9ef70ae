"""Cutting a byte stream into frames: any cut of the stream gives the same frames."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES, MIB
from headrace.transports.frames import FrameReceiver
from headrace.transports.slabs import LARGE_FRAME_BYTES, SLAB_BYTES, Slab
from tests.transports.stage import declare, frame_of

ALL = 1 << 30


def feed(receiver: FrameReceiver, piece: bytes, frames_max: int = ALL) -> list[bytearray]:
    """Read a piece as an event loop does; spoil the slab after, as another connection would."""
    frames: list[bytearray] = []
    while piece and not receiver.breach:
        buffer = receiver.buffer()
        count = min(len(buffer), len(piece))
        assert count > 0
        buffer[:count] = piece[:count]
        piece = piece[count:]
        got = receiver.receive(count, frames_max)
        spoil(receiver)
        while got:
            frames += got
            got = receiver.cut(frames_max) if receiver.rest and not receiver.wanted else ()
    return frames


def spoil(receiver: FrameReceiver) -> None:
    receiver._slab.view[:] = b"\xee" * SLAB_BYTES


def reference(stream: bytes, frame_bytes_max: int) -> tuple[list[bytes], bool]:
    """Cut a whole stream the simple way; say also whether it breaks off with a bad size."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 52:
        (size,) = struct.unpack_from("<I", stream, position + 48)
        if not HEADER_BYTES <= size <= frame_bytes_max:
            return frames, True
        if len(stream) - position < size:
            break
        frames.append(stream[position : position + size])
        position += size
    return frames, False


def test_a_whole_frame_comes_out_as_it_was() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    assert feed(receiver, frame_of(700)) == [frame_of(700)]
    assert receiver.unfinished_bytes == 0


@pytest.mark.parametrize("size", [256, 700, LARGE_FRAME_BYTES])
def test_a_frame_may_be_split_at_every_byte_of_its_header(size: int) -> None:
    slab = Slab()
    frame = frame_of(size)
    for split in range(1, HEADER_BYTES + 1):
        receiver = FrameReceiver(slab, FRAME_BYTES_MAX)
        assert feed(receiver, frame[:split]) == ([frame] if split == size else [])
        assert receiver.unfinished_bytes == (0 if split == size else split)
        assert feed(receiver, frame[split:] + frame) == [frame] * (1 if split == size else 2)


def test_a_frame_may_come_byte_by_byte() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    frame = frame_of(300)
    got = [each for byte in frame for each in feed(receiver, bytes([byte]))]
    assert got == [frame]


@pytest.mark.parametrize(
    "size",
    [LARGE_FRAME_BYTES - 1, LARGE_FRAME_BYTES, SLAB_BYTES - 1, SLAB_BYTES, SLAB_BYTES + 1, MIB],
)
def test_sizes_around_the_bounds_follow_each_other(size: int) -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    frames = [frame_of(size, 1), frame_of(size, 2), frame_of(256, 3), frame_of(size, 4)]
    assert feed(receiver, b"".join(frames)) == frames


def test_each_frame_has_memory_of_its_own() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    first, second = feed(receiver, frame_of(700, 1) + frame_of(700, 2))
    first[:] = bytes(700)
    assert second == frame_of(700, 2)
    first.clear()  # Nobody else holds it: it may even change its size.


def test_a_large_frame_is_read_into_its_own_memory() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    frame = frame_of(MIB)
    assert feed(receiver, frame[:HEADER_BYTES]) == []
    assert receiver.wanted == MIB
    buffer = receiver.buffer()
    assert receiver.frame is not None
    assert len(buffer) == MIB - HEADER_BYTES
    buffer[:] = frame[HEADER_BYTES:]
    (got,) = receiver.receive(len(buffer), ALL)
    assert got == frame


def test_after_a_huge_frame_only_the_next_header_is_read() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    feed(receiver, frame_of(MIB))
    assert len(receiver.buffer()) == HEADER_BYTES
    feed(receiver, frame_of(700))
    assert len(receiver.buffer()) == SLAB_BYTES


def test_a_read_of_nothing_loses_nothing() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    frame = frame_of(700)
    assert feed(receiver, frame[:300]) == []
    receiver.buffer()  # The socket had nothing, and the slab went to another connection.
    spoil(receiver)
    assert feed(receiver, frame[300:]) == [frame]


def test_frames_above_the_maximum_wait_to_be_cut() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    frames = [bytearray(frame_of(256, mark)) for mark in range(5)]
    buffer = receiver.buffer()
    buffer[: 5 * 256] = b"".join(frames)
    assert list(receiver.receive(5 * 256, 2)) == frames[:2]
    spoil(receiver)
    assert not receiver.cut(0)
    assert list(receiver.cut(2)) == frames[2:4]
    assert list(receiver.cut(2)) == frames[4:]
    assert receiver.unfinished_bytes == 0


@pytest.mark.parametrize("size", [0, 1, 255, 65_537, 1 << 31, (1 << 32) - 1])
def test_a_size_outside_the_bounds_is_a_breach_behind_the_good_frames(size: int) -> None:
    receiver = FrameReceiver(Slab(), 65_536)
    assert feed(receiver, frame_of(300) + declare(size)) == [frame_of(300)]
    assert receiver.breach == f"frame of {size} bytes, allowed 256 to 65536"
    assert receiver.unfinished_bytes == 0


def test_a_size_is_refused_as_soon_as_it_is_known_and_before_memory_is_taken() -> None:
    """CL2."""
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    header = declare(FRAME_BYTES_MAX + 1)
    assert feed(receiver, header[:51]) == []
    assert len(receiver.breach) == 0
    tracemalloc.start()
    try:
        assert feed(receiver, header[51:52]) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(receiver.breach) > 0
    assert peak < 4 * SLAB_BYTES


def test_memory_is_taken_only_when_reading_goes_on() -> None:
    receiver = FrameReceiver(Slab(), FRAME_BYTES_MAX)
    tracemalloc.start()
    try:
        feed(receiver, declare(FRAME_BYTES_MAX))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert receiver.wanted == FRAME_BYTES_MAX
    assert peak < 4 * SLAB_BYTES


sizes = st.one_of(
    st.integers(256, 2000),
    st.sampled_from([LARGE_FRAME_BYTES - 1, LARGE_FRAME_BYTES, SLAB_BYTES + 7, 400_000]),
)


@settings(max_examples=40)
@given(
    st.lists(sizes, max_size=8),
    st.sampled_from(["", "good", "bad", "short"]),
    st.lists(st.integers(1, 300_000) | st.integers(1, 300), min_size=1, max_size=12),
    st.sampled_from([1, 3, ALL]),
)
def test_any_split_gives_the_frames_of_the_reference(
    wanted: list[int], end: str, splits: list[int], frames_max: int
) -> None:
    stream = b"".join(frame_of(size, mark) for mark, size in enumerate(wanted))
    stream += {
        "": b"",
        "good": frame_of(900)[:777],
        "bad": declare(500_001) + frame_of(256),
        "short": frame_of(256)[:40],
    }[end]
    receiver = FrameReceiver(Slab(), 500_000)
    got: list[bytearray] = []
    position = 0
    for count in (*splits, len(stream)):
        got += feed(receiver, stream[position : position + count], frames_max)
        position += count
    frames, is_breach = reference(stream, 500_000)
    assert got == frames
    assert bool(receiver.breach) == is_breach
    if not is_breach:
        assert receiver.unfinished_bytes == len(stream) - sum(map(len, frames))
