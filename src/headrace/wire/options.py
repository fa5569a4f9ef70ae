"""Options blocks: the options of a topic in a request, and the resolved ones in a reply.

Invariants: keys are text and unique; a block stays within its bounds in bytes and pairs.
"""

from typing import TypeAlias

import msgspec

from headrace.base.limits import OPTIONS_BYTES_MAX, OPTIONS_MAX
from headrace.wire.codec import Reader, Sized, read_text
from headrace.wire.errors import Code, DecodeError
from headrace.wire.fields import FIELD, Field, FieldKind, FieldValue, make_field


class Option(msgspec.Struct, frozen=True):
    """One key with its value."""

    key: str
    value: Field


Options: TypeAlias = tuple[Option, ...]


def make_options(values: dict[str, FieldValue | Field]) -> Options:
    """Return an options block, its keys in ascending order as the released SDK sends them."""
    return tuple(
        Option(key, value if isinstance(value, Field) else make_field(value))
        for key, value in sorted(values.items())
    )


class _OptionsCodec:
    """Pairs back to back to the end of the bytes, without a count."""

    def read(self, reader: Reader) -> Options:
        if reader.remaining > OPTIONS_BYTES_MAX:
            raise DecodeError(
                f"options of {reader.remaining} bytes, limit {OPTIONS_BYTES_MAX}",
                Code.OPTIONS_BLOCK_TOO_LARGE,
            )
        options: dict[str, Option] = {}
        while reader.remaining:
            key = _read_key(FIELD.read(reader))
            if key in options:
                raise DecodeError(f"option {key!r} stands twice", Code.INVALID_OPTION_VALUE)
            options[key] = Option(key, FIELD.read(reader))
            if len(options) > OPTIONS_MAX:
                raise DecodeError(f"more than {OPTIONS_MAX} options", Code.OPTIONS_BLOCK_TOO_LARGE)
        return tuple(options.values())

    def write(self, out: bytearray, value: Options) -> None:
        if len(value) > OPTIONS_MAX or len({option.key: None for option in value}) != len(value):
            raise ValueError(f"options must be at most {OPTIONS_MAX} with keys of their own")
        start = len(out)
        for option in value:
            FIELD.write(out, make_field(option.key))
            FIELD.write(out, option.value)
        if len(out) - start > OPTIONS_BYTES_MAX:
            raise ValueError(f"options of {len(out) - start} bytes, limit {OPTIONS_BYTES_MAX}")


def _read_key(field: Field) -> str:
    if field.kind != FieldKind.STRING:
        raise DecodeError(f"option key of kind {field.kind}", Code.UNSUPPORTED_OPTION_KEY)
    return read_text(field.data)


OPTIONS = _OptionsCodec()  # in requests: to the end of the body
SIZED_OPTIONS = Sized(OPTIONS)  # in replies
