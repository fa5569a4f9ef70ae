"""Messages as bytes for stdout: only values, values after columns, or full JSON or YAML.

Pipes get only values: no Python code runs per message (bench/client.py).
"""

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from headrace.cli.show.message_values import describe_bytes, describe_message
from headrace.cli.show.output import YAML_MODULE, Value, Values, json_line
from headrace.cli.show.quantities import write_time
from headrace.client.messages import Message

# The columns that can be shown before a value.
COLUMNS: dict[str, Callable[[Message], str]] = {
    "partition": lambda message: str(message.partition),
    "offset": lambda message: str(message.offset),
    "time": lambda message: write_time(message.timestamp),
    "id": lambda message: f"{message.id:032x}",
    "headers": lambda message: json_line(describe_message(message)["headers"]),
}


@dataclass(frozen=True)
class Look:
    """The format of the output."""

    output: str  # one of `headrace.cli.show.output.FORMATS`; `table` is lines of text
    columns: tuple[str, ...] = ()
    is_json: bool = False  # whether values are JSON and shown as such
    is_terminal: bool = False  # whether the output is a terminal
    delimiter: bytes = b"\n"

    @property
    def is_plain(self) -> bool:
        """Whether the values are written unchanged."""
        return (
            self.output == "table"
            and not self.columns
            and not self.is_json
            and not self.is_terminal
        )


def write_values(values: Sequence[bytes], delimiter: bytes) -> bytes:
    """Return the values unchanged, each followed by the delimiter."""
    return delimiter.join([*values, b""])


class Writer:
    """Formats messages one after the other, with the brackets around them all."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._is_first = True

    def write(self, messages: Sequence[Message]) -> bytes:
        """Return the bytes of the next messages."""
        return b"".join([self._write_one(message) for message in messages])

    def end(self) -> bytes:
        """Return the bytes after the last message."""
        if self._look.output != "json":
            return b""
        return b"[]\n" if self._is_first else b"\n]\n"

    def _write_one(self, message: Message) -> bytes:
        look = self._look
        if look.output == "table":
            return self._write_text(message)
        described = _describe(message, is_json=look.is_json)
        if look.output == "jsonl":
            return msgspec.json.encode(described) + b"\n"
        if look.output == "yaml":
            text: str = importlib.import_module(YAML_MODULE).to_yaml([described])
            return text.encode()
        start, self._is_first = ("[\n" if self._is_first else ",\n"), False
        lines = json.dumps(described, indent=2, ensure_ascii=False).splitlines()
        return (start + "\n".join(f"  {line}" for line in lines)).encode()

    def _write_text(self, message: Message) -> bytes:
        look = self._look
        columns = "".join(f"{COLUMNS[name](message)}\t" for name in look.columns)
        value = _pretty(message.value) if look.is_json else message.value
        if look.is_terminal:
            value = _tame(value)
        return columns.encode() + value + look.delimiter


def _describe(message: Message, *, is_json: bool) -> Values:
    described = dict(describe_message(message))
    if is_json:
        try:
            value: Value = json.loads(message.value)
        except ValueError:
            return described
        described["value"], described["encoding"] = value, "json"
    return described


def _pretty(value: bytes) -> bytes:
    """Return JSON indented; other values unchanged."""
    try:
        return json.dumps(json.loads(value), indent=2, ensure_ascii=False).encode()
    except ValueError:
        return value


def _tame(value: bytes) -> bytes:
    """Return the value for a terminal, with every control character escaped."""
    text = describe_bytes(value)[0]
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    ).encode()
