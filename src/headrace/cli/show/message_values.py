"""A message as values for output: text as text, other bytes as base64."""

from __future__ import annotations

from base64 import b64encode
from math import isfinite
from typing import TYPE_CHECKING

from headrace.wire.fields import UNREADABLE_HEADERS

if TYPE_CHECKING:
    from headrace.cli.show.output import Value, Values
    from headrace.client.messages import Message


def describe_message(message: Message) -> Values:
    """Return a message as values for programs.

    `encoding` says how to read `value`: `utf-8` or `base64`. The id has 128 bits, more than a JSON
    number holds reliably, so it is text.
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
        "headers": _describe_headers(message),
    }


def _describe_headers(message: Message) -> Values:
    """Return the headers by name; undecodable headers as base64 under the name `!raw`."""
    headers = message.headers
    if headers == {UNREADABLE_HEADERS: message.raw_headers}:
        return {UNREADABLE_HEADERS: b64encode(message.raw_headers).decode()}
    return {str(_plain(key)): _plain(header) for key, header in headers.items()}


def describe_bytes(data: bytes) -> tuple[str, str]:
    """Return bytes as text, and the encoding."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


def _plain(value: bytes | str | float) -> Value:
    """Return the value of a header as a JSON value."""
    if isinstance(value, bytes):
        return describe_bytes(value)[0]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value
