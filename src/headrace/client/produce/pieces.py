"""Splits many messages into pieces to be sent, in memory that does not grow with their number."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import cast

from headrace.base.limits import MIB
from headrace.client.messages import are_encoded, encode_value

PIECE_MESSAGES_MAX = 1000
PIECE_BYTES_MAX = MIB  # or one message that is larger


def cut_values(values: Iterable[bytes | str]) -> Iterator[list[bytes]]:
    """Yield the encoded messages (see `encode_value`) in pieces, none of them empty.

    Raises:
        ValueError: A message is empty or too large. A sequence then yields no piece, another
            iterable yields the messages before it.
        TypeError: A message is neither bytes nor text, likewise; or `values` is one message.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError("values: a list or an iterator of messages, not one message")
    if not isinstance(values, Sequence):
        yield from _gather(values)
        return
    for piece in _slice(values):
        if not are_encoded(piece):
            for value in piece:
                encode_value(value)
    for piece in _slice(values):
        if are_encoded(piece):
            yield cast("list[bytes]", piece)
        else:
            yield from _gather(piece)


def _slice(values: Iterable[bytes | str]) -> Iterator[list[bytes | str]]:
    iterator = iter(values)
    while piece := list(islice(iterator, PIECE_MESSAGES_MAX)):
        yield piece


def _gather(values: Iterable[bytes | str]) -> Iterator[list[bytes]]:
    """Yield pieces, reading no more than one piece ahead: the iterator may make each message."""
    piece: list[bytes] = []
    size = 0
    try:
        for value in values:
            piece.append(encode_value(value))
            size += len(piece[-1])
            if len(piece) == PIECE_MESSAGES_MAX or size >= PIECE_BYTES_MAX:
                yield piece
                piece, size = [], 0
    except Exception:
        if piece:
            yield piece  # Earlier messages are sent, as if each had been sent by itself.
        raise
    if piece:
        yield piece
