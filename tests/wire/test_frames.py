import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.limits import HEADER_BYTES
from headrace.wire.errors import RemoteError
from headrace.wire.frames import FrameCutter
from headrace.wire.layout import SIZE

LIMIT = 4096


def frame(body: bytes, size: int | None = None) -> bytes:
    header = bytearray(HEADER_BYTES)
    declared = HEADER_BYTES + len(body) if size is None else size
    header[SIZE] = declared.to_bytes(4, "little")
    return bytes(header) + body


FRAMES = st.lists(st.binary(max_size=LIMIT - HEADER_BYTES).map(frame), max_size=6)


@given(FRAMES, st.lists(st.integers(1, 700), min_size=1))
def test_any_cut_of_the_stream_gives_the_same_frames(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames)
    cutter = FrameCutter(LIMIT)
    received = []
    position = turn = 0
    while position < len(stream):
        piece = stream[position : position + cuts[turn % len(cuts)]]
        received += [bytes(each) for each in cutter.feed(piece)]
        assert cutter.held <= LIMIT
        position += len(piece)
        turn += 1
    assert received == frames
    assert cutter.held == 0


@given(FRAMES, st.integers(0, 300))
def test_an_unfinished_frame_is_held_and_not_given(frames: list[bytes], length: int) -> None:
    started = frame(bytes(200))[:length]
    cutter = FrameCutter(LIMIT)
    assert [bytes(each) for each in cutter.feed(b"".join(frames) + started)] == frames
    assert cutter.held == len(started)


def test_a_whole_frame_is_not_copied() -> None:
    piece = frame(b"body")
    (given_frame,) = FrameCutter().feed(piece)
    assert given_frame.obj is piece


@pytest.mark.parametrize("size", [0, 1, 255, LIMIT + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("piece_bytes", [1, 51, 52, 256])
def test_a_size_outside_the_limits_is_refused_before_it_is_held(
    size: int, piece_bytes: int
) -> None:
    """CL2: a declared size over the limit allocates nothing."""
    cutter = FrameCutter(LIMIT)
    stream = frame(b"", size)
    pieces = [stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes)]
    with pytest.raises(RemoteError, match=f"frame of {size} bytes, allowed 256 to {LIMIT}"):
        [list(cutter.feed(piece)) for piece in pieces]
    assert cutter.held <= 52


def test_a_frame_at_the_limit_is_taken() -> None:
    largest = frame(bytes(LIMIT - HEADER_BYTES))
    assert [bytes(each) for each in FrameCutter(LIMIT).feed(largest)] == [largest]


def test_only_what_arrived_is_held() -> None:
    """A header that declares the largest frame must not reserve it."""
    cutter = FrameCutter()
    assert list(cutter.feed(frame(b"", 64 * 2**20))) == []
    assert cutter.held == HEADER_BYTES
