"""Messages that say who they are: a payload is a function of its key, so any read can be judged."""

import struct
from itertools import accumulate
from typing import NamedTuple

from headrace import kernel

_KEY = struct.Struct("<8sQQII")
_MAGIC = b"CRASHKEY"
PAYLOAD_BYTES_MIN = _KEY.size


class Key(NamedTuple):
    """One message: who sent it, in which request, at which place of the batch, how large."""

    client: int
    request: int
    place: int
    size: int


class Seen(NamedTuple):
    """One message as a read gave it; without a key its payload is none that was ever made."""

    offset: int
    key: Key | None


def make_payload(key: Key) -> bytes:
    """Give the payload of a key: the key again and again, up to its size."""
    assert key.size >= PAYLOAD_BYTES_MIN
    head = _KEY.pack(_MAGIC, key.client, key.request, key.place, key.size)
    return (head * (key.size // len(head) + 1))[: key.size]


def read_key(payload: bytes) -> Key | None:
    """Give the key of a payload, or nothing if any byte of it is not what the key says."""
    if len(payload) < PAYLOAD_BYTES_MIN:
        return None
    magic, *fields = _KEY.unpack_from(payload)
    key = Key(*fields)
    if magic != _MAGIC or key.size != len(payload) or make_payload(key) != payload:
        return None
    return key


def make_batch(keys: list[Key]) -> bytes:
    """Give a batch as a producer sends it."""
    payloads = [make_payload(key) for key in keys]
    count = len(keys)
    ids = b"".join(struct.pack("<QII", key.client, key.request, key.place) for key in keys)
    ends = list(accumulate((len(payload) for payload in payloads), initial=0))
    return kernel.build(
        ids,
        struct.pack(f"<{count}Q", *(1_700_000_000_000_000 for _ in keys)),
        b"".join(payloads),
        struct.pack(f"<{count + 1}i", *ends),
        None,
        None,
    )


def read_batches(batches: bytes | memoryview) -> list[Seen]:
    """Give the messages of a poll's batches; the kernel checks their checksums on the way."""
    columns = kernel.columns(batches, 0, (1 << 63) - 1, True)
    count = columns.messages_count
    offsets = struct.unpack(f"<{count}q", columns.offsets)
    ends = struct.unpack(f"<{count + 1}i", columns.payload_offsets)
    return [
        Seen(offset, read_key(columns.payloads[ends[index] : ends[index + 1]]))
        for index, offset in enumerate(offsets)
    ]
