"""Reads the tables of a job file key by key, and collects all problems."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headrace.base.nearest import hint_nearest
from headrace.base.units import parse_duration

T = TypeVar("T")

_SHOWN_MAX = 60


class Keys:
    """One table: each key is taken once, with its type; problems go to a shared list.

    A missing or wrong key returns its default, so that reading continues to the next problem.
    """

    def __init__(self, path: str, raw: object, problems: list[str]) -> None:
        self.path = path
        self.problems = problems
        self._raw: Mapping[str, object] = {}
        self._asked: list[str] = []
        if isinstance(raw, Mapping) and all(isinstance(key, str) for key in raw):
            self._raw = raw
        else:
            problems.append(f"{path}: is a table of keys, not {_show(raw)}")

    def __contains__(self, key: str) -> bool:
        return key in self._raw

    def names(self) -> list[str]:
        """Return the keys of a table whose names are free."""
        self._asked += self._raw
        return list(self._raw)

    def text(self, key: str, default: str = "", *, needed: bool = False) -> str:
        """Return a text that is not empty."""
        return self._take(key, default, _read_text, "a text", needed=needed)

    def word(
        self, key: str, words: Iterable[str], default: str = "", *, needed: bool = False
    ) -> str:
        """Return one of a few words."""
        known = list(words)

        def read(raw: object) -> str:
            if raw not in known:
                raise ValueError(hint_nearest(str(raw), known).removeprefix("; "))
            return str(raw)

        return self._take(key, default, read, " or ".join(known), needed=needed)

    def texts(self, key: str, *, needed: bool = False) -> tuple[str, ...]:
        """Return a list of texts; a single text becomes a list of one."""

        def read(raw: object) -> tuple[str, ...]:
            given = raw if isinstance(raw, list | tuple) else [raw]
            if not given:
                raise ValueError("is empty")
            return tuple(map(_read_text, given))

        return self._take(key, (), read, "a text or a list of texts", needed=needed)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """Return a table of texts; numbers and booleans are written as in Spark."""

        def read(raw: object) -> dict[str, str]:
            if not isinstance(raw, Mapping):
                raise ValueError("is no table")  # noqa: TRY004 - one kind of refusal for a value
            return {str(name): _read_scalar(str(name), value) for name, value in raw.items()}

        return self._take(key, {}, read, "a table of texts")

    def count(self, key: str, default: int) -> int:
        """Return a number of 0 or more."""

        def read(raw: object) -> int:
            if not isinstance(raw, int) or isinstance(raw, bool) or raw < 0:
                raise ValueError
            return raw

        return self._take(key, default, read, "a number of 0 or more")

    def duration_millis(self, key: str, raw: object) -> int | None:
        """Return a duration in whole milliseconds; None if it is not a duration."""
        try:
            micros = parse_duration(_read_text(raw))
        except ValueError as error:
            self.refuse(key, str(error))
            return None
        if micros % 1000:
            self.refuse(key, f"{_show(raw)} is no whole number of milliseconds")
            return None
        return micros // 1000

    def raw(self, key: str) -> object:
        """Return a value unchecked, or None; the caller checks it."""
        self._asked.append(key)
        return self._raw.get(key)

    def table(self, key: str, *, needed: bool = False) -> "Keys":
        """Return the table under a key; a missing table has no keys."""
        if needed and key not in self._raw:
            self.refuse(key, "is missing")
        self._asked.append(key)
        return Keys(f"{self.path}.{key}", self._raw.get(key, {}), self.problems)

    def refuse(self, key: str, sentence: str) -> None:
        """Record a problem of a key."""
        self.problems.append(f"{self.path}.{key}: {sentence}")

    def finish(self) -> None:
        """Record the keys that were not taken as unknown."""
        for key in self._raw:
            if key not in self._asked:
                self.refuse(key, f"no such key{hint_nearest(key, self._asked)}")

    def _take(
        self,
        key: str,
        default: T,
        read: Callable[[object], T],
        allowed: str,
        *,
        needed: bool = False,
    ) -> T:
        self._asked.append(key)
        if key not in self._raw:
            if needed:
                self.refuse(key, f"is missing; allowed {allowed}")
            return default
        try:
            return read(self._raw[key])
        except ValueError as error:
            because = f"{error}; " if str(error) else ""
            self.refuse(key, f"{_show(self._raw[key])}: {because}allowed {allowed}")
            return default


def _read_text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
        raise ValueError
    return raw


def _read_scalar(name: str, raw: object) -> str:
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str | int | float):
        return str(raw)
    raise ValueError(f"{name} is neither a text nor a number")


def _show(raw: object) -> str:
    shown = re.sub(r"\s+", " ", repr(raw))
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[: _SHOWN_MAX - 3]}..."
