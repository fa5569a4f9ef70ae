"""The options that a topic can have: their kinds, defaults and bounds.

Streams and users have none. A server fills in what a client leaves out; how the classes of
durability combine with its own minimum is not part of this table.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from headrace.base.limits import (
    GIB,
    MESSAGES_REQUIRED_TO_SAVE_MAX,
    MIB,
    SAVE_BYTES_MAX,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_BYTES_STEP,
)
from headrace.base.units import parse_bytes, parse_duration
from headrace.wire.errors import Code, DecodeError, RefusedError
from headrace.wire.fields import Field, FieldKind, FieldValue, make_field
from headrace.wire.options import Option

UNLIMITED = (1 << 64) - 1  # no expiry, or no bound of the size
SERVER_DEFAULT = 0  # the same as leaving the key out, at creation and in an update
SERVER_DEFAULT_WORD = "server_default"  # the same for options that are words

_Parse: TypeAlias = Callable[[str], FieldValue]


class TopicOption(msgspec.Struct, frozen=True, kw_only=True):
    """One option and its description."""

    key: str
    kind: FieldKind
    default: FieldValue
    description: str
    is_updatable: bool = False
    is_filled_in: bool = True  # If not, a topic without it follows the server, also later.
    is_listed: bool = True  # whether the catalog of options has it
    parse: _Parse
    allows: Callable[[FieldValue], bool]


def _one_of(*words: str) -> Callable[[FieldValue], bool]:
    return lambda value: value in words


def _within(low: int, high: int, step: int = 1) -> Callable[[FieldValue], bool]:
    def allows(value: FieldValue) -> bool:
        return isinstance(value, int) and low <= value <= high and value % step == 0

    return allows


def _or_default(allows: Callable[[FieldValue], bool]) -> Callable[[FieldValue], bool]:
    return lambda value: value == SERVER_DEFAULT or allows(value)


def _parse_word(text: str) -> FieldValue:
    return text


def _parse_flag(text: str) -> FieldValue:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _or_unlimited(parse: Callable[[str], int]) -> _Parse:
    def parse_limit(text: str) -> FieldValue:
        words = {"never": UNLIMITED, "unlimited": UNLIMITED, SERVER_DEFAULT_WORD: SERVER_DEFAULT}
        found = words.get(text.strip().lower())
        return parse(text) if found is None else found

    return parse_limit


RESPECT_CONSUMERS = "respect"
IGNORE_CONSUMERS = "ignore"

_DURABILITY_CLASSES = ("replicated", "persisted")

TOPIC_OPTIONS = {
    option.key: option
    for option in (
        TopicOption(
            key="compression_algorithm",
            kind=FieldKind.STRING,
            default="none",
            description="how producers compress payloads: none or gzip",
            is_updatable=True,
            parse=_parse_word,
            allows=_one_of("none", "gzip"),
        ),
        TopicOption(
            key="message_expiry",
            kind=FieldKind.UINT64,
            default=UNLIMITED,
            description="microseconds after which messages may go; 0 takes the server's default,"
            " in an update 0 changes nothing",
            is_updatable=True,
            parse=_or_unlimited(parse_duration),
            allows=_within(0, UNLIMITED),
        ),
        TopicOption(
            key="max_topic_size",
            kind=FieldKind.UINT64,
            default=UNLIMITED,
            description="bytes above which the oldest segments go; 0 takes the server's default,"
            " in an update 0 changes nothing",
            is_updatable=True,
            parse=_or_unlimited(parse_bytes),
            allows=_within(0, UNLIMITED),
        ),
        TopicOption(
            key="segment_size",
            kind=FieldKind.UINT64,
            default=GIB,
            description="bytes at which a segment is sealed, a multiple of 512; 0 takes the"
            " server's default",
            parse=parse_bytes,
            allows=_or_default(_within(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_STEP)),
        ),
        TopicOption(
            key="messages_required_to_save",
            kind=FieldKind.UINT32,
            default=1024,
            description="messages in memory at which a partition is written out",
            parse=int,
            allows=_within(1, MESSAGES_REQUIRED_TO_SAVE_MAX),
        ),
        TopicOption(
            key="size_of_messages_required_to_save",
            kind=FieldKind.UINT64,
            default=MIB,
            description="bytes in memory at which a partition is written out",
            parse=parse_bytes,
            allows=_within(0, SAVE_BYTES_MAX),
        ),
        TopicOption(
            key="preallocate_segments",
            kind=FieldKind.BOOL,
            default=False,
            description="whether the space of a segment is taken when it is opened",
            parse=_parse_flag,
            allows=lambda value: isinstance(value, bool),
        ),
        TopicOption(
            key="durability",
            kind=FieldKind.STRING,
            default="persisted",
            description="when a send is acknowledged: replicated, or persisted after a sync",
            parse=_parse_word,
            allows=_one_of(*_DURABILITY_CLASSES),
        ),
        TopicOption(
            key="consumer_offset_durability",
            kind=FieldKind.STRING,
            default="persisted",
            description="when a stored offset is acknowledged: replicated, or persisted",
            parse=_parse_word,
            allows=_one_of(*_DURABILITY_CLASSES),
        ),
        TopicOption(
            key="retention_consumers",
            kind=FieldKind.STRING,
            default=SERVER_DEFAULT_WORD,
            description="whether messages that consumers have not read may go: respect, ignore,"
            " or server_default",
            is_updatable=True,
            is_filled_in=False,
            parse=_parse_word,
            allows=_one_of(SERVER_DEFAULT_WORD, RESPECT_CONSUMERS, IGNORE_CONSUMERS),
        ),
        TopicOption(
            key="enforce_fsync",
            kind=FieldKind.BOOL,
            default=True,
            description="how older clients say durability: true is persisted, false replicated",
            is_filled_in=False,
            is_listed=False,
            parse=_parse_flag,
            allows=lambda value: isinstance(value, bool),
        ),
    )
}


def canonical_option(option: Option) -> Option:
    """Return a topic's option in its canonical kind; a known key may also come as text.

    Raises:
        RefusedError: The key is not known, or the value is not allowed.
    """
    known = TOPIC_OPTIONS.get(option.key)
    if known is None:
        raise RefusedError(Code.UNSUPPORTED_OPTION_KEY, key=option.key)
    try:
        value = _read_value(known, option.value)
    except (DecodeError, ValueError) as error:
        raise RefusedError(Code.INVALID_OPTION_VALUE, key=option.key, what=str(error)) from None
    if not known.allows(value):
        raise RefusedError(Code.INVALID_OPTION_VALUE, key=option.key, value=value)
    return Option(option.key, make_field(value, known.kind))


def _read_value(known: TopicOption, field: Field) -> FieldValue:
    value = field.value
    if field.kind == known.kind:
        return value
    if isinstance(value, str):
        return known.parse(value)
    raise ValueError(f"kind {field.kind}, {known.kind} wanted")
