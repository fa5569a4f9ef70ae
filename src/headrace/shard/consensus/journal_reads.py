"""Reads ops back from the journal for groups and for checkpoints.

Flow: replicate.
"""

from collections.abc import Callable
from itertools import count

from headrace.ports.disk import JournalRead
from headrace.shard.consensus.inbox import Inbox
from headrace.storage.store import Store
from headrace.vsr.events import EntryRead, ReadEntry
from headrace.vsr.replica import Replica


class JournalReads:
    """The reads that are on their way, by token."""

    def __init__(self, store: Store, inbox: Inbox) -> None:
        self._store = store
        self._inbox = inbox
        self._reads: dict[int, tuple[Replica, int]] = {}
        self.new_token = count(1).__next__

    def read(self, replica: Replica, effect: ReadEntry) -> None:
        """Ask for an op of a group; one that the journal does not hold is answered at once."""
        token = self.new_token()
        if self._store.read(replica.group, effect.op, token):
            self._reads[token] = (replica, effect.token)
        else:
            self._inbox.queue.append((replica, EntryRead(effect.token, b"", b"")))

    def on_read(self, event: JournalRead, is_other: Callable[[int, bytes, bytes], bool]) -> None:
        """Pass on what was read; `is_other` takes what was not asked for here."""
        self._store.step(event)
        for token, header, body in self._store.take_reads():
            if is_other(token, header, body):
                continue
            replica, group_token = self._reads.pop(token)
            self._inbox.hand_back(replica, EntryRead(group_token, header, body))
