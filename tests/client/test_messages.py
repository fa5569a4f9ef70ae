"""Messages on their way in and out."""

import pickle
import sys
import tracemalloc
from array import array
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.errors import DataDamaged, ProtocolBroken
from headrace.client.messages import (
    Message,
    build_batch,
    encode_headers,
    encode_value,
    encode_values,
    read_messages,
)
from headrace.kernel import NATIVE
from headrace.wire.batches import admit_batch
from headrace.wire.commands.messages import PolledMessages
from headrace.wire.fields import Field, FieldKind, encode_user_headers, make_field

VALUES = st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20)
SCALARS = st.one_of(
    st.text(min_size=1, max_size=20),
    st.binary(min_size=1, max_size=20),
    st.booleans(),
    st.integers(-(1 << 127), (1 << 128) - 1),
    st.floats(allow_nan=False),
)
HEADERS = st.dictionaries(st.text(min_size=1, max_size=20), SCALARS, max_size=4)


def polled(
    values: list[bytes], headers: list[bytes], base: int = 0, taken: int = 5_000_000
) -> PolledMessages:
    times = array("Q", range(1000, 1000 + len(values)))
    batch = bytearray(build_batch(values, headers, times))
    admit_batch(batch, len(values), partition_id=7, base_offset=base, base_timestamp=taken)
    return PolledMessages(7, base + len(values) - 1, len(values), memoryview(batch))


@settings(max_examples=15)
@given(values=VALUES, headers=st.data())
def test_what_is_sent_is_read(values: list[bytes], headers: st.DataObject) -> None:
    sent = [headers.draw(HEADERS) for _ in values]
    messages = read_messages(polled(values, [encode_headers(each) for each in sent], base=40))
    assert [message.value for message in messages] == values
    assert list(messages.values()) == values
    assert [message.headers for message in messages] == sent
    assert [message.offset for message in messages] == list(range(40, 40 + len(values)))
    assert [message.origin_timestamp for message in messages] == list(
        range(1000, 1000 + len(values))
    )
    assert {message.partition for message in messages} == {7}
    assert len({message.id for message in messages}) == len(values)


def test_a_message_tells_of_itself() -> None:
    messages = read_messages(polled(["grüße".encode(), b"x" * 100], [b"", b""]))
    assert messages[0].text == "grüße"
    assert messages[0].time.isoformat() == "1970-01-01T00:00:05+00:00"
    assert repr(messages[1]).endswith("...'>")
    assert repr(messages) == "<2 messages of partition 7, 0 to 1>"


def test_a_message_lives_on_by_itself() -> None:
    poll = polled([b"a", b"b" * 600], [encode_headers({"n": 1}), b""])
    message = read_messages(poll)[0]
    memory = poll.batches
    memory[:] = bytes(len(memory))  # as the next answer does
    again = pickle.loads(pickle.dumps(message))
    assert (again.value, again.headers, again.id) == (b"a", {"n": 1}, message.id)
    assert again != message
    assert len({message, again}) == 2
    with pytest.raises(AttributeError):
        message.value = b"b"  # type: ignore[misc] # that is the point


@given(taken=st.lists(st.integers(1, 3), max_size=4))
def test_each_message_has_the_time_of_its_batch(taken: list[int]) -> None:
    polls = [polled([b"a"] * 2, [b""] * 2, 2 * index, time) for index, time in enumerate(taken)]
    data = b"".join(poll.batches for poll in polls)
    messages = read_messages(PolledMessages(7, 0, 2 * len(taken), memoryview(data)))
    assert [message.timestamp for message in messages] == [time for time in taken for _ in "ab"]
    assert messages.timestamps() == [messages[index].timestamp for index in range(len(messages))]


def test_messages_are_a_sequence() -> None:
    messages = read_messages(polled([b"a", b"b", b"c"], [b""] * 3))
    assert messages[-1].value == b"c"
    assert [message.value for message in messages[1:]] == [b"b", b"c"]
    with pytest.raises(IndexError):
        messages[3]


def test_a_range_of_offsets() -> None:
    part = read_messages(polled([b"a", b"b", b"c"], [b""] * 3, base=5), offset_min=6)
    assert [message.value for message in part] == [b"b", b"c"]
    empty = PolledMessages(7, 0, 0, memoryview(b""))
    assert repr(read_messages(empty)) == "<no messages of partition 7>"


@given(at=st.integers(304, 350))
def test_damage_is_noticed(at: int) -> None:
    data = polled([b"x" * 60], [b""])
    damaged = bytearray(data.batches)
    damaged[at] ^= 1
    with pytest.raises(DataDamaged, match="partition 7"):
        read_messages(PolledMessages(7, 0, 1, memoryview(damaged)))


def tell(found: Iterable[Message]) -> list[tuple[object, ...]]:
    """Return all that users can see of messages."""
    return [
        (
            each.partition,
            each.offset,
            each.value,
            each.timestamp,
            each.origin_timestamp,
            each.id,
            each.raw_headers,
        )
        for each in found
    ]


@settings(max_examples=40)
@given(data=st.data())
def test_messages_taken_apart_are_those_of_the_columns(data: st.DataObject) -> None:
    """With headers and without, of several batches, with gaps between them, from an offset on."""
    parts, end = [], data.draw(st.integers(0, 3))
    for time in data.draw(st.lists(st.integers(1, 3), max_size=3)):
        values = data.draw(VALUES)
        headers = [encode_headers(data.draw(HEADERS)) for _ in values]
        parts.append(bytes(polled(values, headers, end, time).batches))
        end += len(values) + data.draw(st.integers(0, 2))
    poll = PolledMessages(7, end, 0, memoryview(b"".join(parts)))
    offset_min = data.draw(st.integers(0, end))
    one = read_messages(poll, offset_min=offset_min)
    other = read_messages(poll, offset_min=offset_min, is_split=True)

    assert tell(other) == tell(one) == tell(other[:]) == tell(one[:])
    assert (len(other), repr(other)) == (len(one), repr(one))
    assert (other.values(), other.timestamps()) == (one.values(), one.timestamps())
    assert other.run_length() == one.run_length()
    first = data.draw(st.integers(0, len(one)))
    assert tell(other.first(first)) == tell(one.first(first)) == tell(one)[:first]
    assert other.first(first).columns == one.first(first).columns
    assert other.columns == one.columns
    assert {type(each.value) for each in other} <= {bytes}


def test_values_that_are_changed_are_a_list_of_their_own() -> None:
    messages = read_messages(polled([b"a", b"b"], [b""] * 2), is_split=True)
    messages.values().clear()
    messages.timestamps().clear()
    assert [(message.value, message.timestamp) for message in messages] == [
        (b"a", 5_000_000),
        (b"b", 5_000_000),
    ]


@pytest.mark.parametrize("is_split", [False, True])
def test_a_poll_taken_apart_is_checked_as_columns_are(*, is_split: bool) -> None:
    data = polled([b"x" * 60] * 2, [b""] * 2)
    damaged = bytearray(data.batches)
    damaged[-1] ^= 1
    with pytest.raises(DataDamaged, match=r"partition 7: frame checksum .*\(frame 1, "):
        read_messages(PolledMessages(7, 0, 2, memoryview(damaged)), is_split=is_split)
    with pytest.raises(ProtocolBroken, match="older messages"):
        read_messages(data, offset_min=2, is_split=is_split)


@pytest.mark.skipif(not NATIVE, reason="the twin of the kernel makes other objects")
def test_objects_of_a_message_that_is_taken_by_itself() -> None:
    """The message, its value, its offset and its time: no copy of the value, no other object."""
    count, size = 1_000, 1_024
    poll = polled([b"x" * size] * count, [b""] * count, base=10_000)
    list(read_messages(poll, is_split=True))
    tracemalloc.start()
    try:
        messages = list(read_messages(poll, is_split=True))
        _, peak = tracemalloc.get_traced_memory()
        blocks = sum(each.count for each in tracemalloc.take_snapshot().statistics("filename"))
    finally:
        tracemalloc.stop()
    assert blocks <= 4 * count + 50
    assert peak <= sum(sys.getsizeof(each.value) for each in messages) + 250 * count


@given(gap=st.integers(0, 5), first=st.integers(1, 5), second=st.integers(1, 5))
def test_a_run_ends_at_a_gap(gap: int, first: int, second: int) -> None:
    one = polled([b"a"] * first, [b""] * first)
    other = polled([b"b"] * second, [b""] * second, base=first + gap)
    data = bytes(one.batches) + bytes(other.batches)
    messages = read_messages(PolledMessages(7, 0, first + second, memoryview(data)))
    assert messages.run_length() == (first if gap else first + second)


@pytest.mark.parametrize("value", ["", b"", b"x" * 64_000_001])
def test_a_value_has_bounds(value: bytes | str) -> None:
    with pytest.raises(ValueError, match="allowed 1 to 64000000"):
        encode_value(value)


def test_a_value_is_bytes_or_text() -> None:
    with pytest.raises(TypeError, match="not dict"):
        encode_value({"a": 1})  # type: ignore[arg-type] # that is the point


@pytest.mark.parametrize(
    "opaque",
    [
        b"\0",
        b"\xff" * 40,
        encode_headers({"a": 1})[:-1],
        encode_user_headers([(make_field("a"), Field(FieldKind.STRING, b"\xff"))]),
        encode_user_headers([(make_field("a"), Field(FieldKind.INT32, b"\1"))]),
    ],
    ids=["short", "ciphertext", "cut", "no text", "no number"],
)
def test_headers_that_cannot_be_read(opaque: bytes) -> None:
    """They are shown as raw bytes with a mark, and cost no other message anything."""
    readable = encode_headers({"n": 1})
    messages = read_messages(polled([b"a", b"b", b"c"], [readable, opaque, b""]))
    assert [message.headers for message in messages] == [{"n": 1}, {"!raw": opaque}, {}]
    assert [message.raw_headers for message in messages] == [readable, opaque, b""]
    assert [message.value for message in messages] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("headers", [{"": 1}, {"a": ""}, {"a": "x" * 256}])
def test_headers_have_bounds(headers: dict[str, str | int]) -> None:
    with pytest.raises(ValueError, match="bytes"):
        encode_headers(dict(headers))


@pytest.mark.parametrize(
    ("headers", "error", "words"),
    [
        ({"trace": ""}, ValueError, "header 'trace': value: value of 0 bytes, allowed 1 to 255"),
        ({"": "x"}, ValueError, "header '': name: value of 0 bytes, allowed 1 to 255"),
        ({"trace": 1 << 130}, ValueError, "header 'trace': value: .* does not fit 128 bits"),
        ({"trace": None}, TypeError, "header 'trace': its value is a NoneType, allowed are text"),
        ({"trace": ["x"]}, TypeError, "header 'trace': its value is a list, allowed are text"),
    ],
)
def test_a_wrong_header_is_named_with_its_rule(
    headers: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        encode_headers(headers)


def test_all_headers_together_have_bounds() -> None:
    with pytest.raises(ValueError, match="limit 100000"):
        encode_headers({f"{number:04}": "x" * 250 for number in range(400)})


def test_a_poll_that_gives_only_older_messages_is_no_empty_one() -> None:
    with pytest.raises(ProtocolBroken, match="from offset 50 gave older messages"):
        read_messages(polled([b"a", b"b"], [b"", b""], base=40), offset_min=50)


def test_the_first_messages_are_those_of_the_whole() -> None:
    values = [b"a", b"bb", b"ccc"]
    headers = [encode_headers({"n": number}) for number in range(3)]
    messages = read_messages(polled(values, headers, base=40))

    def told(found: Iterable[Message]) -> list[tuple[object, ...]]:
        return [(each.offset, each.value, each.id, each.headers, each.time) for each in found]

    assert told(messages.first(2)) == told(messages)[:2]
    assert messages.first(2).last_offset == 41
    assert messages.first(3) is messages
    assert told(messages[:2]) == told(messages)[:2]
    assert told([messages[index] for index in range(3)]) == told(messages)


def test_many_values_are_checked_as_one_is() -> None:
    assert encode_values([b"a", b"b"]) == [b"a", b"b"]
    assert encode_values(["é", b"b"]) == ["é".encode(), b"b"]
    with pytest.raises(ValueError, match="message of 0 bytes"):
        encode_values([b"a", b""])
    with pytest.raises(TypeError, match="not int"):
        encode_values([b"a", 7])  # type: ignore[list-item] # what the test is about
