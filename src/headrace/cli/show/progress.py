"""A progress bar on stderr, on a terminal only. rich is loaded only if it is shown."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

ITEMS_MIN = 20  # fewer items need no bar


def track(items: Sequence[T], words: str) -> Iterator[T]:
    """Yield the items one by one, and show how many are done."""
    if len(items) < ITEMS_MIN or not sys.stderr.isatty():
        yield from items
        return
    console = importlib.import_module("rich.console").Console(stderr=True)
    bar = importlib.import_module("rich.progress")
    yield from bar.track(items, description=words, console=console, transient=True)
