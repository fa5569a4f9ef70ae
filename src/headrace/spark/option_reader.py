"""Takes options one by one, in any case, and gathers what is wrong with them for one message."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from headrace.base.nearest import hint_nearest
from headrace.spark.option_values import read_count

T = TypeVar("T")


class OptionsError(ValueError):
    """Options are wrong; the message names every problem."""


class OptionReader:
    """Takes options one by one and gathers what is wrong with them."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        self._known = known
        self._given = {name.lower(): str(text) for name, text in given.items()}
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return name.lower() in self._given

    def refuse_unknown(self) -> None:
        """Note options that there are not, each with the one that was meant."""
        known = [name.lower() for name in self._known]
        for name in sorted(self._given):
            if name not in known:
                self.problems.append(f"{name}: no such option{hint_nearest(name, self._known)}")

    def take(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Give an option's value, or the default if it is missing or wrong."""
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return default

    def take_count(self, name: str) -> int | None:
        """Give a number of 1 or more, or None."""
        return self.take(name, read_count, None)

    def raise_problems(self) -> None:
        """Say all that was wrong.

        Raises:
            OptionsError: Something was.
        """
        if not self.problems:
            return
        count = len(self.problems)
        words = "an option of this source is" if count == 1 else f"{count} options are"
        raise OptionsError("\n".join([f"{words} wrong:", *(f"  {each}" for each in self.problems)]))
