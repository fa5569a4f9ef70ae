"""What the options of a topic mean to the server."""

import msgspec

from headrace.wire.errors import CorruptError, RefusedError
from headrace.wire.fields import FieldValue
from headrace.wire.numbers import Compression
from headrace.wire.options import Options
from headrace.wire.topic_options import (
    SERVER_DEFAULT,
    SERVER_DEFAULT_WORD,
    UNLIMITED,
    canonical_option,
)

COMPRESSION = "compression_algorithm"
MESSAGE_EXPIRY = "message_expiry"
MAX_TOPIC_SIZE = "max_topic_size"
SEGMENT_SIZE = "segment_size"
PREALLOCATE = "preallocate_segments"
DURABILITY = "durability"
OFFSET_DURABILITY = "consumer_offset_durability"
ENFORCE_FSYNC = "enforce_fsync"  # another spelling of `durability`, which a topic has besides
RETENTION_CONSUMERS = "retention_consumers"

REPLICATED = "replicated"
PERSISTED = "persisted"

_COMPRESSIONS = {"none": Compression.NONE, "gzip": Compression.GZIP}


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's options, read once; sizes in bytes, durations in microseconds."""

    compression: Compression
    message_expiry: int  # UNLIMITED means never
    max_topic_size: int  # UNLIMITED means without bound
    segment_bytes: int
    is_preallocated: bool
    is_persisted: bool
    is_offset_persisted: bool
    retention_consumers: str  # respect, ignore, or as the server has it


def read_settings(explicit: Options, derived: Options) -> TopicSettings:
    """Read what a topic was given; the two blocks together hold every option that is filled in.

    Raises:
        CorruptError: An option is missing, stands twice or has a value that it cannot have.
    """
    values = _read_values((*derived, *explicit))
    if values.get(SEGMENT_SIZE) == SERVER_DEFAULT:
        raise CorruptError("topic with segments of the default size, which it does not name")
    try:
        return TopicSettings(
            compression=_COMPRESSIONS[str(values[COMPRESSION])],
            message_expiry=int(values[MESSAGE_EXPIRY]),
            max_topic_size=int(values[MAX_TOPIC_SIZE]),
            segment_bytes=int(values[SEGMENT_SIZE]),
            is_preallocated=bool(values[PREALLOCATE]),
            is_persisted=values[DURABILITY] == PERSISTED,
            is_offset_persisted=values[OFFSET_DURABILITY] == PERSISTED,
            retention_consumers=str(values.get(RETENTION_CONSUMERS, SERVER_DEFAULT_WORD)),
        )
    except KeyError as error:
        raise CorruptError(f"topic without option {error}") from None


def expiry_or_never(settings: TopicSettings) -> int:
    """Return the age at which messages may go, 0 if they never do."""
    return 0 if settings.message_expiry == UNLIMITED else settings.message_expiry


def _read_values(options: Options) -> dict[str, FieldValue]:
    values = {}
    for option in options:
        try:
            canonical = canonical_option(option)
        except RefusedError as error:
            raise CorruptError(f"topic option: {error}") from None
        if canonical != option or option.key in values:
            raise CorruptError(f"topic option {option.key!r} stands twice or is not canonical")
        values[option.key] = option.value.value
    return values
