"""Handles producers that nobody closes: sends their messages at exit, else reports them.

```
the interpreter exits    atexit, while daemon threads still run       sent, or reported on stderr
a loop ends              its tasks are cancelled and awaited          sent, or reported on stderr
a producer is collected  nothing can be sent any more                 a ResourceWarning
```
"""

import atexit
import os
import sys
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from typing import Any

from headrace.client.calls.names import TopicName, join_topic
from headrace.client.produce.batching import Batcher

SECONDS_MAX = 10.0  # for all producers together, so that a program ends


class FlushedAtExit(ABC):
    """A producer that may be dropped without being closed."""

    _batcher: Batcher[Any] | None = None

    def __init__(self, topic: TopicName, batcher: Batcher[Any]) -> None:
        self._topic = topic
        self._batcher = batcher
        self._process = os.getpid()
        self._is_reported = False
        _open.add(self)

    @abstractmethod
    def _begin_leaving(self) -> None:
        """Accept no more messages, and send the buffered ones at once."""

    @abstractmethod
    def _finish_leaving(self, seconds: float) -> None:
        """Wait up to that long until everything is settled."""

    @property
    def has_unreported(self) -> bool:
        """Whether it has unconfirmed messages that were not reported yet.

        The messages of a forked process belong to its parent.
        """
        if self._batcher is None or self._is_reported or os.getpid() != self._process:
            return False
        return self._batcher.unsent_count > 0

    def _report(self) -> None:
        """Report the unconfirmed messages on stderr, once."""
        if self.has_unreported and sys.stderr is not None:
            sys.stderr.write(f"headrace: {self._words()}\n")
        self._is_reported = True

    def _words(self) -> str:
        assert self._batcher is not None
        failure = self._batcher.failure
        return (
            f"{self._batcher.unsent_count} messages for {join_topic(self._topic)!r} were not"
            f" confirmed{'' if failure is None else f' ({failure})'};"
            " close a producer, or use it in a `with` block, to wait for all of them"
        )

    def __del__(self) -> None:
        if self.has_unreported:
            warnings.warn(self._words(), ResourceWarning, stacklevel=1, source=self)


_open: weakref.WeakSet[FlushedAtExit] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """Send the messages of producers that were not closed; report those not settled in time."""
    held = [producer for producer in _open if producer.has_unreported]
    deadline = time.monotonic() + SECONDS_MAX
    try:
        for producer in held:
            producer._begin_leaving()  # noqa: SLF001 - start all, then wait for each
        for producer in held:
            producer._finish_leaving(max(deadline - time.monotonic(), 0.0))  # noqa: SLF001
    finally:
        for producer in held:
            producer._report()  # noqa: SLF001
