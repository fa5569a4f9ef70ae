"""What producers hold when nobody closes them: sent when the program ends, else told.

```
the interpreter ends     atexit, while daemon threads still live      sent, or told on stderr
a loop ends              its tasks are cancelled, and waited for      sent, or told on stderr
a producer is collected  nothing can be sent any more                 told as a ResourceWarning
```
"""

import atexit
import os
import sys
import time
import warnings
import weakref
from abc import ABC, abstractmethod

from headrace.client.calls.names import TopicName, join_topic
from headrace.client.produce.batching import Batcher

SECONDS_MAX = 10.0  # for all producers together; a program has to end


class Leaves(ABC):
    """A producer that may be left without having been closed."""

    _batcher: Batcher | None = None

    def __init__(self, topic: TopicName, batcher: Batcher) -> None:
        self._topic = topic
        self._batcher = batcher
        self._process = os.getpid()
        self._is_told = False
        _open.add(self)

    @abstractmethod
    def _begin_leaving(self) -> None:
        """Take no more, and have what waits sent at once."""

    @abstractmethod
    def _finish_leaving(self, seconds: float) -> None:
        """Wait that long until everything is settled."""

    @property
    def has_leftovers(self) -> bool:
        """Whether there are messages of which nobody knows that they are not confirmed.

        Those of a forked process are its parent's.
        """
        if self._batcher is None or self._is_told or os.getpid() != self._process:
            return False
        return self._batcher.unsent_count > 0

    def _tell(self) -> None:
        """Say on stderr, once, what is left."""
        if self.has_leftovers and sys.stderr is not None:
            sys.stderr.write(f"headrace: {self._words()}\n")
        self._is_told = True

    def _words(self) -> str:
        assert self._batcher is not None
        failure = self._batcher.failure
        return (
            f"{self._batcher.unsent_count} messages for {join_topic(self._topic)!r} were not"
            f" confirmed{'' if failure is None else f' ({failure})'};"
            " close a producer, or use it in a `with` block, to wait for all of them"
        )

    def __del__(self) -> None:
        if self.has_leftovers:
            warnings.warn(self._words(), ResourceWarning, stacklevel=1, source=self)


_open: weakref.WeakSet[Leaves] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """Send what producers hold that were not closed; tell what is not settled in time."""
    held = [producer for producer in _open if producer.has_leftovers]
    deadline = time.monotonic() + SECONDS_MAX
    try:
        for producer in held:
            producer._begin_leaving()  # noqa: SLF001 - all at once, then all are waited for
        for producer in held:
            producer._finish_leaving(max(deadline - time.monotonic(), 0.0))  # noqa: SLF001
    finally:
        for producer in held:
            producer._tell()  # noqa: SLF001
