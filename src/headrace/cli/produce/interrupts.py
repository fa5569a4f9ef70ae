"""Handles Ctrl-C while work must not be left half done.

The first Ctrl-C takes effect while the program waits for input, or when it next checks; a second
one ends the program at once.
"""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self, TypeVar

R = TypeVar("R")


class Interrupts:
    """Handles Ctrl-C for the duration of a `with` block."""

    def __init__(self) -> None:
        self.is_wanted = False  # whether Ctrl-C was pressed
        self._is_waiting = False
        self._before = signal.getsignal(signal.SIGINT)

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def wait(self, read: Callable[[], R]) -> R | None:
        """Return the result of `read`, or None if Ctrl-C was pressed before or meanwhile."""
        try:
            self._is_waiting = True
            return None if self.is_wanted else read()
        except KeyboardInterrupt:
            return None
        finally:
            self._is_waiting = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        is_second, self.is_wanted = self.is_wanted, True
        if is_second or self._is_waiting:
            raise KeyboardInterrupt
