"""A message as commands show it: what is text as text, what is not as base64."""

from __future__ import annotations

from base64 import b64encode
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.cli.output import Value, Values
    from headrace.client.messages import Message


def describe_message(message: Message) -> Values:
    """Give what programs are told about a message.

    `encoding` says how to read `value`: `utf-8` or `base64`. The id has 128 bits, more than a JSON
    number can be trusted with, and is text.
    """
    value, encoding = describe_bytes(message.value)
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_at": message.timestamp,
        "origin_timestamp_at": message.origin_timestamp,
        "id": str(message.id),
        "value": value,
        "encoding": encoding,
        "headers": {str(_plain(key)): _plain(header) for key, header in message.headers.items()},
    }


def describe_bytes(data: bytes) -> tuple[str, str]:
    """Give bytes as text, and how they were made into it."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


def _plain(value: bytes | str | float) -> Value:
    """Give the value of a header as JSON can say it."""
    if isinstance(value, bytes):
        return describe_bytes(value)[0]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value
