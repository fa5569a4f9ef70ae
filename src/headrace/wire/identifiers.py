"""The names in requests: identifiers, consumers, partitionings, polling strategies."""

from typing import TypeAlias

import msgspec

from headrace.base.limits import MESSAGES_KEY_BYTES_MAX, NAME_BYTES_MAX
from headrace.wire.codec import FLAG, U8, U32, U64, Enumerated, Reader, Record, read_text
from headrace.wire.errors import DecodeError
from headrace.wire.numbers import ConsumerKind

# A stream, topic, user or group by its number or by its name.
Identifier: TypeAlias = int | str

_NUMERIC = 1
_NAMED = 2
_NUMERIC_BYTES = 4


class _IdentifierCodec:
    """Kind, length, value: four bytes for a number, 1 to 255 for a name."""

    def read(self, reader: Reader) -> Identifier:
        kind, length = reader.take(2)
        if kind == _NUMERIC and length == _NUMERIC_BYTES:
            return U32.read(reader)
        if kind == _NAMED and length > 0:
            return read_text(reader.take(length))
        raise DecodeError(f"identifier of kind {kind} and {length} bytes")

    def write(self, out: bytearray, value: Identifier) -> None:
        if isinstance(value, int):
            out += bytes((_NUMERIC, _NUMERIC_BYTES))
            U32.write(out, value)
            return
        name = value.encode()
        if not 1 <= len(name) <= NAME_BYTES_MAX:
            raise ValueError(f"name of {len(name)} bytes, allowed 1 to {NAME_BYTES_MAX}")
        out += bytes((_NAMED, len(name)))
        out += name


IDENTIFIER = _IdentifierCodec()


class Consumer(msgspec.Struct, frozen=True):
    """The one that polls or stores an offset: a single consumer, or a group."""

    kind: ConsumerKind
    id: Identifier


CONSUMER = Record(Consumer, kind=Enumerated(U8, ConsumerKind), id=IDENTIFIER)


class Balanced(msgspec.Struct, frozen=True):
    """The server distributes batches over the topic's partitions in turn."""


class ToPartition(msgspec.Struct, frozen=True):
    """The batch goes to this partition; all that the released SDK ever sends."""

    partition_id: int


class ByKey(msgspec.Struct, frozen=True):
    """The key's XXH32 chooses the partition, so equal keys keep their order."""

    key: bytes


Partitioning: TypeAlias = Balanced | ToPartition | ByKey

_BALANCED = 1
_TO_PARTITION = 2
_BY_KEY = 3


class _PartitioningCodec:
    """Kind, length, value."""

    def read(self, reader: Reader) -> Partitioning:
        kind, length = reader.take(2)
        value = bytes(reader.take(length))
        if kind == _BALANCED and length == 0:
            return Balanced()
        if kind == _TO_PARTITION and length == 4:
            return ToPartition(int.from_bytes(value, "little"))
        if kind == _BY_KEY and length > 0:
            return ByKey(value)
        raise DecodeError(f"partitioning of kind {kind} and {length} bytes")

    def write(self, out: bytearray, value: Partitioning) -> None:
        match value:
            case Balanced():
                out += bytes((_BALANCED, 0))
            case ToPartition(partition_id):
                out += bytes((_TO_PARTITION, 4))
                U32.write(out, partition_id)
            case ByKey(key):
                if not 1 <= len(key) <= MESSAGES_KEY_BYTES_MAX:
                    raise ValueError(f"key of {len(key)} bytes, 1 to {MESSAGES_KEY_BYTES_MAX}")
                out += bytes((_BY_KEY, len(key)))
                out += key


PARTITIONING = _PartitioningCodec()


class FromOffset(msgspec.Struct, frozen=True):
    """From this offset, or from the oldest retained message when it is older."""

    offset: int


class FromTimestamp(msgspec.Struct, frozen=True):
    """From the first batch appended at this time, in microseconds, or later."""

    timestamp: int


class First(msgspec.Struct, frozen=True):
    """From the oldest retained message."""


class Last(msgspec.Struct, frozen=True):
    """The newest messages, as many as were asked for."""


class Next(msgspec.Struct, frozen=True):
    """From the one after the offset stored for this consumer or group."""


Strategy: TypeAlias = FromOffset | FromTimestamp | First | Last | Next


_FROM_OFFSET = 1
_FROM_TIMESTAMP = 2
_BARE: dict[int, Strategy] = {3: First(), 4: Last(), 5: Next()}
_BARE_KINDS = {type(strategy): kind for kind, strategy in _BARE.items()}


class _StrategyCodec:
    """Kind and a value of eight bytes, which is zero where the kind needs none."""

    def read(self, reader: Reader) -> Strategy:
        kind = U8.read(reader)
        value = U64.read(reader)
        if kind == _FROM_OFFSET:
            return FromOffset(value)
        if kind == _FROM_TIMESTAMP:
            return FromTimestamp(value)
        if kind in _BARE:
            return _BARE[kind]
        raise DecodeError(f"polling strategy {kind} is not known")

    def write(self, out: bytearray, value: Strategy) -> None:
        if isinstance(value, FromOffset):
            U8.write(out, _FROM_OFFSET)
            U64.write(out, value.offset)
        elif isinstance(value, FromTimestamp):
            U8.write(out, _FROM_TIMESTAMP)
            U64.write(out, value.timestamp)
        else:
            U8.write(out, _BARE_KINDS[type(value)])
            U64.write(out, 0)


STRATEGY = _StrategyCodec()


class _OptionalPartition:
    """A flag and four bytes that are always present, zero when no partition is named."""

    def read(self, reader: Reader) -> int | None:
        present = FLAG.read(reader)
        number = U32.read(reader)
        return number if present else None

    def write(self, out: bytearray, value: int | None) -> None:
        FLAG.write(out, value is not None)
        U32.write(out, 0 if value is None else value)


OPTIONAL_PARTITION = _OptionalPartition()
