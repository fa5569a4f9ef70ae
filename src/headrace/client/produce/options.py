"""The options of a producer, and the settings that result from them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from headrace.base.limits import KIB, MIB
from headrace.base.nearest import refuse_unknown
from headrace.base.units import parse_bytes
from headrace.client.session.settings import Duration, read_seconds

MESSAGES_MAX = 100_000
BATCH_BYTES_MIN = 4 * KIB
BATCH_BYTES_MAX = 48 * MIB  # a frame of the protocol holds 64
BUFFER_BYTES_MAX = 1 << 40

Partitioning: TypeAlias = Literal["balanced"] | int


class ProducerOptions(TypedDict, total=False):
    """The options of `client.producer`, besides the topic.

    Attributes:
        batch: The maximum number of messages in a batch. [1000]
        batch_bytes: The maximum size of a batch. ["1 MiB"]
        linger: How long a message waits for others to fill its batch. ["5 ms"]
        buffer: The maximum size of all unconfirmed messages; then `send` waits. ["32 MiB"]
        block: How long `send` waits for room before it raises `BufferFull`. ["60 s"]
        partitioning: `"balanced"`, or the number of one partition; a key overrides both.
    """

    batch: int
    batch_bytes: str | int
    linger: Duration
    buffer: str | int
    block: Duration
    partitioning: Partitioning


@dataclass(frozen=True)
class ProducerSettings:
    """The options, with defaults filled in."""

    messages_max: int
    batch_bytes_max: int
    linger_seconds: float
    buffer_bytes_max: int
    block_seconds: float
    partition: int | None


def read_producer_options(options: ProducerOptions) -> ProducerSettings:
    """Return the settings, with defaults filled in.

    Raises:
        TypeError: There is no such option.
        ValueError: An option is wrong.
    """
    refuse_unknown("producer()", options, ProducerOptions.__annotations__)
    partitioning = options.get("partitioning", "balanced")
    is_number = isinstance(partitioning, int) and not isinstance(partitioning, bool)
    if partitioning != "balanced" and (not is_number or partitioning < 0):
        raise ValueError(f"partitioning: {partitioning!r} is not 'balanced' and no partition")
    return ProducerSettings(
        messages_max=_within("batch", options.get("batch", 1000), 1, MESSAGES_MAX),
        batch_bytes_max=_within(
            "batch_bytes", options.get("batch_bytes", MIB), BATCH_BYTES_MIN, BATCH_BYTES_MAX
        ),
        linger_seconds=read_seconds("linger", options.get("linger", 0.005), zero=True),
        buffer_bytes_max=_within("buffer", options.get("buffer", 32 * MIB), KIB, BUFFER_BYTES_MAX),
        block_seconds=read_seconds("block", options.get("block", 60.0), zero=True),
        partition=None if partitioning == "balanced" else int(partitioning),
    )


def _within(name: str, value: str | int, low: int, high: int) -> int:
    number = parse_bytes(value) if isinstance(value, str) else value
    if not low <= number <= high:
        raise ValueError(f"{name}: {value!r} is not within {low} to {high}")
    return number
