"""Reads options one by one, with case-insensitive names, and collects problems in one message."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from headrace.base.nearest import hint_nearest
from headrace.spark.option_values import read_count

T = TypeVar("T")


class OptionsError(ValueError):
    """Options are wrong; the message lists every problem."""


class OptionReader:
    """Reads options one by one and collects problems."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        self._known = known
        self._given = {name.lower(): str(text) for name, text in given.items()}
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return name.lower() in self._given

    def refuse_unknown(self) -> None:
        """Record unknown options, each with the most similar known one."""
        known = [name.lower() for name in self._known]
        for name in sorted(self._given):
            if name not in known:
                self.problems.append(f"{name}: no such option{hint_nearest(name, self._known)}")

    def take(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Return an option's value, or the default if it is missing or wrong."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return default

    def take_count(self, name: str) -> int | None:
        """Return a number of 1 or more, or None."""
        return self.take(name, read_count, None)

    def raise_problems(self) -> None:
        """Raise an error that lists all problems, if there are any.

        Raises:
            OptionsError: There are problems.
        """
        if not self.problems:
            return
        count = len(self.problems)
        words = "an option of this source is" if count == 1 else f"{count} options are"
        raise OptionsError("\n".join([f"{words} wrong:", *(f"  {each}" for each in self.problems)]))
