"""Writes YAML in block style: a small part of the language, without a library.

The package does not depend on a YAML library, and JSON, though valid YAML, is not what a user who
asks for YAML wants to read. Text is written plain where no reader of YAML 1.1 or 1.2 could misread
it, and elsewhere as a JSON string, which both read.
"""

import json
import re
from collections.abc import Mapping, Sequence

from headrace.cli.show.output import Value

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.@-]*( [A-Za-z0-9_/.@-]+)*")
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf")
# JSON does not escape these, and YAML reads them as line breaks or refuses them.
_UNQUOTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def to_yaml(value: Value) -> str:
    """Return a value as YAML, with a final newline."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Value) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, each in value.items() for line in _entry(f"{_scalar(key)}:", each)]
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return [line for each in value for line in _item(each)]
    return [_scalar(value)]


def _entry(key: str, value: Value) -> list[str]:
    lines = _lines(value)
    if not _is_nested(value):
        return [f"{key} {lines[0]}"]
    return [key, *(f"  {line}" for line in lines)]


def _item(value: Value) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _is_nested(value: Value) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and len(value) > 0


def _scalar(value: Value) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return _UNQUOTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
