"""Shows the progress of long work on stderr, on a terminal only.

rich is loaded only if it is shown.
"""

import importlib
import sys
import time
from types import TracebackType
from typing import Any, Self

REFRESH_SECONDS = 0.1


class Meter:
    """A progress bar over bytes or messages; without a total it only shows activity."""

    def __init__(self, total: int | None, *, is_quiet: bool) -> None:
        """With `is_quiet`, or without a terminal, it shows nothing."""
        self._is_shown = sys.stderr.isatty() and not is_quiet
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._due = 0.0
        self._bar: Any = None  # of rich, which is loaded late
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._is_shown:
            progress = importlib.import_module("rich.progress")
            console = importlib.import_module("rich.console").Console(stderr=True)
            self._bar = progress.Progress(
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TextColumn("{task.fields[words]}"),
                console=console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, words="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        """Add `count` to the amount done, in the unit of the total."""
        self._done += count

    def show(self, messages_count: int) -> None:
        """Refresh the bar and the number of messages, at most every `REFRESH_SECONDS`."""
        now = time.monotonic()
        if self._bar is None or now < self._due:
            return
        self._due = now + REFRESH_SECONDS
        rate = messages_count / max(now - self._began, REFRESH_SECONDS)
        words = f"{messages_count:,} messages, {rate:,.0f}/s"
        self._bar.update(self._task, completed=self._done, words=words)
