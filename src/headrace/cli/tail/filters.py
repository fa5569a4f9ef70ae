"""Filters messages by value: the forms of `--filter`.

```
error               the value contains this text
/time-?out/         this regular expression matches a part of it
.customer.id=7      it is JSON, and the field has this value; dots separate the names of a path,
                    numbers index lists
```
"""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec

Filter: TypeAlias = Callable[[bytes], bool]


def parse_filter(text: str) -> Filter:
    """Return the filter for a text.

    Raises:
        ValueError: It is not a filter.
    """
    if not text:
        raise ValueError("an empty filter: write a text, /a regular expression/, or .field=value")
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return _by_pattern(text[1:-1])
    path, sign, wanted = text.partition("=")
    if path.startswith(".") and sign:
        return _by_field(path[1:].split("."), wanted)
    data = text.encode()
    return lambda value: data in value


def keep(values: list[bytes], filters: list[Filter]) -> list[int]:
    """Return the indexes of the values that pass every filter."""
    return [index for index, value in enumerate(values) if all(passes(value) for passes in filters)]


def _by_pattern(text: str) -> Filter:
    try:
        pattern = re.compile(text.encode())
    except re.error as error:
        raise ValueError(f"/{text}/ is no regular expression: {error}") from None
    return lambda value: pattern.search(value) is not None


def _by_field(path: list[str], wanted: str) -> Filter:
    """Return a filter that compares a field: text as it is, other values as JSON."""

    def passes(value: bytes) -> bool:
        try:
            found = _find(msgspec.json.decode(value), path)
        except (LookupError, ValueError, msgspec.MsgspecError):
            return False
        return wanted == (found if isinstance(found, str) else msgspec.json.encode(found).decode())

    return passes


def _find(value: object, path: list[str]) -> object:
    for name in path:
        if isinstance(value, dict):
            value = value[name]
        elif isinstance(value, list):
            value = value[int(name)]
        else:
            raise LookupError(name)  # noqa: TRY004 - as a field that is missing
    return value
