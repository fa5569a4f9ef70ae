"""How far long work is, shown on stderr while it lasts, on a terminal only.

rich is loaded for it alone.
"""

import importlib
import sys
import time
from types import TracebackType
from typing import Any, Self

REFRESH_SECONDS = 0.1


class Meter:
    """A bar over bytes or messages, or what moves where nobody knows their number."""

    def __init__(self, total: int | None, *, is_quiet: bool) -> None:
        """With `is_quiet`, or where there is no terminal, it shows nothing."""
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
        """Note that so many more, of what the total counts, are done."""
        self._done += count

    def show(self, messages_count: int) -> None:
        """Show how far it is and how many messages that are, now and then."""
        now = time.monotonic()
        if self._bar is None or now < self._due:
            return
        self._due = now + REFRESH_SECONDS
        rate = messages_count / max(now - self._began, REFRESH_SECONDS)
        words = f"{messages_count:,} messages, {rate:,.0f}/s"
        self._bar.update(self._task, completed=self._done, words=words)
