"""Wire batches to Arrow, held against batches that were taken apart without the kernel."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.client.errors import DataDamaged
from headrace.kernel import slice_batch
from headrace.spark import columns as made
from headrace.spark.batches import Batches
from headrace.spark.columns import TYPES, Clip, ColumnReader, Place, schema_of
from headrace.spark.schema import MESSAGE_COLUMNS
from headrace.spark.slices import UNBOUNDED
from headrace.wire.errors import DecodeError
from headrace.wire.fields import decode_user_headers, encode_user_headers, make_field
from tests.kernel.samples import Message, Row, Stamp, batch_of, messages_strategy, rows_of

PLACE = Place("shop", "orders", 7)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL = tuple(TYPES)
START = 1_800_000_000_000_000


def lay(batches: Sequence[list[Message]], first: int = 1000) -> list[bytes]:
    """Stamp batches as a partition does: offsets follow each other, times rise."""
    laid = []
    for index, messages in enumerate(batches):
        laid.append(batch_of(messages, Stamp(7, first, START + 10 * index)))
        first += len(messages)
    return laid


def read(
    data: bytes, clip: Clip | None = None, columns: Sequence[str] = ALL
) -> list[pa.RecordBatch]:
    reader = ColumnReader(PLACE, clip or Clip(), columns)
    return list(reader.read(Batches(memoryview(data), 7, "poll")))


def time_of(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def expected(row: Row) -> dict[str, Any]:
    try:
        pairs = decode_user_headers(row.message.headers)
        headers = {key.data.decode(errors="backslashreplace"): value.data for key, value in pairs}
    except DecodeError:
        headers = {"!raw": row.message.headers}
    return {
        "stream": "shop",
        "topic": "orders",
        "partition": 7,
        "offset": row.offset,
        "timestamp": time_of(row.timestamp),
        "origin_timestamp": time_of(row.message.time),
        "id": row.message.identity[::-1],
        "payload": row.message.payload,
        "headers": headers or None,
    }


def given_rows(found: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows = []
    for batch in found:
        batch.validate(full=True)
        for row in batch.to_pylist():
            if row.get("headers") is not None:
                row["headers"] = dict(row["headers"])
            rows.append(row)
    return rows


def test_the_types_are_those_that_spark_compares() -> None:
    """Equal to the last flag: Spark refuses a batch whose schema differs in anything."""
    fields = [StructField(name, kind, nullable=True) for name, kind in MESSAGE_COLUMNS.items()]
    wanted = to_arrow_schema(StructType(fields), timezone="UTC")
    assert schema_of(tuple(MESSAGE_COLUMNS)).equals(wanted, check_metadata=True)
    data = b"".join(lay([[Message(b"i" * 16, START, b"x", headers("k", "v"))]]))
    [batch] = read(data, columns=tuple(MESSAGE_COLUMNS))
    assert batch.schema.equals(wanted, check_metadata=True)


def headers(*pairs: Any) -> bytes:
    fields = [make_field(each) for each in pairs]
    return encode_user_headers(list(zip(fields[::2], fields[1::2], strict=True)))


def test_headers_that_cannot_be_read_are_marked() -> None:
    """A message with an encrypted header costs the others of its batch nothing."""
    opaque = [b"\xff" * 40, headers("k", "v")[:-1], b"\xff" * 40]
    sent = [Message(b"i" * 16, START, b"x", each) for each in [headers("k", "v"), *opaque]]
    found = given_rows(read(b"".join(lay([sent]))))
    assert [row["headers"] for row in found] == [{"k": b"v"}, *({"!raw": one} for one in opaque)]


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_what_comes_out_is_what_the_batches_hold(data: st.DataObject) -> None:
    laid = lay(data.draw(st.lists(messages_strategy, min_size=0, max_size=5)))
    low = data.draw(st.integers(995, 1030))
    high = data.draw(st.integers(995, 1030) | st.just(UNBOUNDED))
    since = START + data.draw(st.integers(-5, 55))
    until = data.draw(st.integers(START - 5, START + 55) | st.just(UNBOUNDED))
    columns = data.draw(
        st.permutations(ALL).flatmap(
            lambda every: st.integers(1, 9).map(lambda count: every[:count])
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "RUN_BYTES", data.draw(st.sampled_from([1, 700, 4 << 20])))
        patch.setattr(made, "PAYLOAD_BYTES_MAX", data.draw(st.sampled_from([2, 50, 8 << 20])))
        found = read(b"".join(laid), Clip(low, high, since, until), columns)
    wanted = [
        {name: value for name, value in expected(row).items() if name in columns}
        for batch in laid
        for row in rows_of(batch)
        if low <= row.offset < high and since <= row.timestamp < until
    ]
    assert given_rows(found) == wanted
    for batch in found:
        assert batch.schema == schema_of(columns)
        assert batch.num_rows


def test_a_batch_that_a_poll_has_cut_gives_its_own_offsets() -> None:
    [whole] = lay([[Message(bytes(16), START, b"%d" % index) for index in range(10)]])
    header, start, end = slice_batch(whole, 1004, 3)
    found = given_rows(read(header + whole[start:end], Clip(1005, 1100), ("offset", "payload")))
    assert found == [{"offset": 1005, "payload": b"5"}, {"offset": 1006, "payload": b"6"}]


def test_record_batches_have_the_size_that_spark_likes() -> None:
    messages = [Message(bytes(16), START, b"x" * 1000) for _ in range(1000)]
    found = read(b"".join(lay([messages] * 12)), columns=("payload",))
    assert [batch.num_rows for batch in found] == [5000, 5000, 2000]  # the fifth reaches 4 MiB


def test_a_very_large_batch_is_cut() -> None:
    messages = [Message(bytes(16), START, b"x" * (1 << 20)) for _ in range(20)]
    found = read(lay([messages])[0], columns=("offset", "payload"))
    assert [batch.num_rows for batch in found] == [4, 4, 4, 4, 4]
    assert [row["offset"] for row in given_rows(found)] == list(range(1000, 1020))


def test_headers_that_are_no_text_and_names_that_come_twice() -> None:
    raw = headers(7, "seven", b"\xff", b"raw", "same", "one", "same", "two", "flag", True)
    [batch] = read(lay([[Message(bytes(16), START, b"x", raw)]])[0], columns=("headers",))
    [row] = given_rows([batch])
    assert row["headers"] == {
        "7": b"seven",
        "\\xff": b"raw",
        "same": b"two",
        "flag": b"\1",
    }


def test_messages_without_headers_have_none() -> None:
    some = Message(bytes(16), START, b"x", headers("k", "v"))
    none = Message(bytes(16), START, b"x")
    [batch] = read(lay([[none, some, none, some, none]])[0], columns=("headers",))
    assert [row["headers"] for row in given_rows([batch])] == [
        None,
        {"k": b"v"},
        None,
        {"k": b"v"},
        None,
    ]
    assert read(lay([[none]])[0], columns=("headers",))[0].column(0).null_count == 1


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    laid = lay(data.draw(st.lists(messages_strategy, min_size=1, max_size=3)))
    whole = bytearray(b"".join(laid))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    since = data.draw(st.sampled_from([0, START + 5, START + 100]))
    with pytest.raises(DataDamaged):
        read(bytes(whole), Clip(time_min=since))


def test_damage_is_told_with_its_byte_and_offsets() -> None:
    laid = lay([[Message(bytes(16), START, b"x" * 50) for _ in range(10)] for _ in range(3)])
    data = bytearray(b"".join(laid))
    damaged = 2 * len(laid[0]) + 256 + 48 + 5  # the payload of the first message of the third
    data[damaged] ^= 1
    reader = ColumnReader(PLACE, Clip(), ALL)
    frame, batch = 4096 + 2 * len(laid[0]) + 256, 4096 + 2 * len(laid[0])
    message = (
        rf"^/data/a\.log: frame checksum .* \(frame 0, byte {frame}\),"
        rf" in the batch at byte {batch} with the offsets 1020 to 1029$"
    )
    with pytest.raises(DataDamaged, match=message):
        list(reader.read(Batches(memoryview(data), 7, "/data/a.log", 4096)))


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (100, r"poll: byte 0: 100 bytes are no batch"),
        (300, r"poll: byte 0: batch of \d+ bytes where 300 are left"),
    ],
)
def test_a_cut_batch_is_damage(cut: int, message: str) -> None:
    [batch] = lay([[Message(bytes(16), START, b"x" * 50) for _ in range(10)]])
    with pytest.raises(DataDamaged, match=message):
        read(batch[:cut])


def test_a_batch_of_another_partition_is_damage() -> None:
    stray = batch_of([Message(bytes(16), START, b"x")], Stamp(8, 0, START))
    with pytest.raises(DataDamaged, match="batch of partition 8, 7 expected"):
        read(stray)
