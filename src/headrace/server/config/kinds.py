"""What a setting can hold: how its value is read, shown, and bounded.

A value comes from TOML, or as text from the environment or a flag. A kind returns the value that
the server uses, or raises an error that says what is wrong; it never guesses.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from headrace.base.endpoints import parse_endpoint
from headrace.base.limits import GIB, KIB, MIB
from headrace.base.placement import SHARDS_MAX
from headrace.base.secret import Secret
from headrace.base.units import parse_bytes, parse_duration
from headrace.server.allocation import Wanted, parse_shards
from headrace.wire.topic_options import UNLIMITED

MILLISECOND = 1000
SECOND = 1000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_PATH_BYTES_MAX = 4096
_BYTES_UNITS = ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
_DURATION_UNITS = (
    (DAY, "days"),
    (HOUR, "h"),
    (MINUTE, "min"),
    (SECOND, "s"),
    (MILLISECOND, "ms"),
    (1, "us"),
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NotAllowedError(ValueError):
    """A value that its key cannot have; the text gives the reason if the allowed range does not."""


class Kind(Protocol):
    """How one kind of value is read."""

    @property
    def allowed(self) -> str:
        """What may be written, in words."""

    def read(self, raw: object) -> object:
        """Return the value.

        Raises:
            ValueError: It is none that is allowed.
        """

    def show(self, value: Any) -> str:  # noqa: ANN401 - each kind has its own type of value
        """Return the value as it would be written."""


@dataclass(frozen=True)
class Setting:
    """One key as it is declared: its kind, what it means, and where else it can be given.

    `dev` is the default of `headrace dev` where that differs; `older_names` are environment
    variables that are accepted besides our own.
    """

    kind: Kind
    meaning: str
    flag: str = ""
    dev: object = None
    older_names: tuple[str, ...] = ()

    @property
    def is_secret(self) -> bool:
        """Whether the value is never shown."""
        return isinstance(self.kind, SecretText)


@dataclass(frozen=True)
class Quantity:
    """A whole number with a unit, within bounds that are both allowed."""

    low: int
    high: int
    parse: Callable[[str], int]
    render: Callable[[int], str]
    step: int = 1
    is_bare_allowed: bool = True  # whether a number without a unit has a meaning
    unbounded: str = ""  # the word for no bound

    @property
    def allowed(self) -> str:
        words = f"{self.render(self.low)} to {self.render(self.high)}"
        if self.step > 1:
            words += f" in steps of {self.render(self.step)}"
        return f"{words}, or {self.unbounded}" if self.unbounded else words

    def read(self, raw: object) -> int:
        if self.unbounded and raw == self.unbounded:
            return UNLIMITED
        value = self._number(raw)
        if not self.low <= value <= self.high or value % self.step:
            raise NotAllowedError
        return value

    def show(self, value: int) -> str:
        if self.unbounded and value == UNLIMITED:
            return self.unbounded
        return self.render(value)

    def _number(self, raw: object) -> int:
        if isinstance(raw, str):
            return self.parse(raw)
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise NotAllowedError(
                "not a number" if self.is_bare_allowed else "not a text with a unit"
            )
        if not self.is_bare_allowed:
            raise NotAllowedError("a number without a unit")
        return raw


def count(low: int, high: int) -> Quantity:
    """Return the kind of a plain number."""
    return Quantity(low, high, _parse_count, _show_count)


def size(low: int, high: int, *, step: int = 1, unbounded: str = "") -> Quantity:
    """Return the kind of a number of bytes: `64 KiB`, `1 GiB`, or bytes without a unit."""
    return Quantity(low, high, parse_bytes, show_bytes, step, unbounded=unbounded)


def duration(low: int, high: int, *, step: int = 1, unbounded: str = "") -> Quantity:
    """Return the kind of a duration, in microseconds: `250 ms`, `30 s`; the unit is required."""
    return Quantity(
        low, high, parse_duration, show_duration, step, is_bare_allowed=False, unbounded=unbounded
    )


@dataclass(frozen=True)
class Factor:
    """A number that may have a fraction."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def read(self, raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise NotAllowedError("not a number")
        try:
            value = float(raw)
        except (ValueError, OverflowError):
            raise NotAllowedError("not a number") from None
        if not self.low <= value <= self.high:  # also false for NaN
            raise NotAllowedError
        return value

    def show(self, value: float) -> str:
        return f"{value:g}"


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    allowed = "true or false"

    def read(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        raise NotAllowedError

    def show(self, value: bool) -> str:  # noqa: FBT001 - the Protocol's own parameter
        return "true" if value else "false"


@dataclass(frozen=True)
class Word:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return " or ".join(self.words)

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or raw not in self.words:
            raise NotAllowedError
        return raw

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class Name:
    """A short name that is safe in lines, labels and paths."""

    allowed = "1 to 64 letters, digits, points, dashes and underscores"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not _NAME.fullmatch(raw):
            raise NotAllowedError
        return raw

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class Folder:
    """A path; `~` is the home folder, and a relative one starts at the working directory."""

    allowed = "a path"

    def read(self, raw: object) -> Path:
        if not isinstance(raw, str) or not raw or "\0" in raw:
            raise NotAllowedError
        if len(raw.encode(errors="surrogateescape")) > _PATH_BYTES_MAX:
            raise NotAllowedError(f"longer than {_PATH_BYTES_MAX} bytes")
        try:
            return Path(raw).expanduser()
        except RuntimeError:
            raise NotAllowedError("there is no such home folder") from None

    def show(self, value: Path) -> str:
        return str(value)


@dataclass(frozen=True)
class LogFile:
    """A file that lines are appended to; two words stand for no file."""

    STDERR: ClassVar[Path] = Path("stderr")
    OFF: ClassVar[Path] = Path("off")
    allowed = "a path of a file, or stderr, or off"

    def read(self, raw: object) -> Path:
        return Folder().read(raw)

    def show(self, value: Path) -> str:
        return str(value)


@dataclass(frozen=True)
class Listener:
    """Where a listener is bound."""

    allowed = "HOST:PORT, where port 0 picks a free one"

    def read(self, raw: object) -> object:
        if not isinstance(raw, str):
            raise NotAllowedError("not a text")
        return parse_endpoint(raw)

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class Shards:
    """How many shards, and on which CPUs; an empty text leaves it to the folder."""

    allowed = (
        f"1 to {SHARDS_MAX}, all, auto, A..B, numa:auto, numa:nodes=0,1;cores=4;no_ht=true,"
        " or empty"
    )

    def read(self, raw: object) -> Wanted | None:
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            raise NotAllowedError("not a number or a text")
        text = str(raw).strip()
        return parse_shards(text) if text else None

    def show(self, value: Wanted | None) -> str:
        return "" if value is None else str(value)


@dataclass(frozen=True)
class Text:
    """Text of bounded length, without control characters."""

    bytes_min: int
    bytes_max: int

    @property
    def allowed(self) -> str:
        return f"{self.bytes_min} to {self.bytes_max} bytes of text"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.isprintable():
            raise NotAllowedError
        if not self.bytes_min <= len(raw.encode(errors="surrogateescape")) <= self.bytes_max:
            raise NotAllowedError
        return raw

    def show(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class SecretText:
    """A text that is never shown."""

    bytes_min: int
    bytes_max: int

    @property
    def allowed(self) -> str:
        return f"{self.bytes_min} to {self.bytes_max} bytes of text"

    def read(self, raw: object) -> Secret:
        if not isinstance(raw, str):
            raise NotAllowedError
        secret = Secret(raw.encode(errors="surrogateescape"))
        if not self.bytes_min <= len(secret) <= self.bytes_max:
            raise NotAllowedError
        return secret

    def show(self, value: Secret | None) -> str:
        return "none" if value is None else "..."


def show_bytes(value: int) -> str:
    """Write a size in the largest unit that gives a whole number."""
    return _show(value, _BYTES_UNITS)


def show_duration(value: int) -> str:
    """Write a duration in the largest unit that gives a whole number."""
    shown = _show(value, _DURATION_UNITS)
    return "1 day" if shown == "1 days" else shown


def _show(value: int, units: tuple[tuple[int, str], ...]) -> str:
    for unit, word in units:
        if value % unit == 0 and (value or unit == 1):
            return f"{value // unit} {word}"
    raise AssertionError("the last unit is one")


def _parse_count(text: str) -> int:
    digits = text.strip().replace("_", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 20):
        raise NotAllowedError("not a number")
    return int(digits)


def _show_count(value: int) -> str:
    return str(value)
