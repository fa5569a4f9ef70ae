"""Frames of the benchmark are those of an honest client."""

import pytest

from bench.frames import (
    STREAM,
    Account,
    Shape,
    make_batch,
    make_login,
    make_poll,
    make_send,
    make_sends,
)
from headrace import kernel
from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands.messages import POLL_MESSAGES, SEND_MESSAGES
from headrace.wire.commands.session import LOGIN_PASSWORD
from headrace.wire.identifiers import FromOffset, ToPartition
from headrace.wire.requests import REQUEST, check_body, check_request

PATCHED_BYTES = 512  # of each frame, what the generator keeps for each connection
SHAPES = (Shape(1, 100), Shape(100, 1024), Shape(1000, 100))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_batch_is_admitted_again_and_again(shape: Shape) -> None:
    made = make_batch(shape)
    for offset in (0, 5_000):
        batch = bytearray(made)
        kernel.admit(batch, shape.messages, 3, offset, 1_700_000_000_000_000)
        kernel.verify(batch)
        columns = kernel.columns(batch, 0, kernel.OFFSET_MAX, True)
        assert columns.messages_count == shape.messages
        assert len(columns.payloads) == shape.bytes


def test_a_send_names_its_topic_and_carries_the_batch() -> None:
    frame = make_send("orders", Shape(100, 100))
    header = REQUEST.decode(frame)
    check_request(header)
    send = SEND_MESSAGES.decode_request(frame[HEADER_BYTES:])
    assert header.size == len(frame)
    assert (send.stream, send.topic, send.partitioning) == (STREAM, "orders", ToPartition(0))
    assert send.messages_count == 100
    kernel.admit(bytearray(send.batch), 100, 0, 0, 1)


def test_sends_to_several_partitions_differ_in_nothing_else() -> None:
    frames = make_sends("orders", Shape(1000, 100), (3, 0, 70_000))
    sends = [SEND_MESSAGES.decode_request(frame[HEADER_BYTES:]) for frame in frames]
    assert [send.partitioning for send in sends] == [ToPartition(each) for each in (3, 0, 70_000)]
    assert len(dict.fromkeys(map(len, frames))) == 1
    assert len(dict.fromkeys(frame[PATCHED_BYTES:] for frame in frames)) == 1
    for frame in frames:
        check_body(REQUEST.decode(frame), frame[HEADER_BYTES:])


@pytest.mark.parametrize("offset", [0, 77, 2**40])
def test_the_offset_of_a_poll_is_where_it_is_said_to_be(offset: int) -> None:
    poll = make_poll("orders", Shape(100, 100))
    frame = bytearray(poll.frame)
    frame[poll.offset_at : poll.offset_at + 8] = offset.to_bytes(8, "little")
    read = POLL_MESSAGES.decode_request(frame[HEADER_BYTES:])
    assert read.strategy == FromOffset(offset)
    assert (read.count, read.partition_id, read.auto_commit) == (100, 0, False)


def test_a_login_is_one_that_a_server_takes() -> None:
    frame = make_login(Account("root", "a password"))
    header = REQUEST.decode(frame)
    check_request(header)
    check_body(header, frame[HEADER_BYTES:])
    password = LOGIN_PASSWORD.decode_request(frame[HEADER_BYTES:]).password
    assert password is not None
    assert (password.username, password.password) == ("root", b"a password")
