"""Reads ops back from the journal for groups and for checkpoints.

Flow: replicate.
"""

from collections.abc import Callable, Collection, Mapping
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
        assert token not in self._reads, "a token names one read"
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

    def check(self, groups: Mapping[int, Replica], others: Collection[int]) -> None:
        """Assert that the store reads what somebody waits for; `others` are tokens of checkpoints.

        Not once the plane has ended: what a group waited for is thrown away then.
        """
        reads, here = self._reads, groups.items()
        assert not any(token in reads for token in others), "a token names one read"
        awaited = dict.fromkeys([*reads, *others])
        assert awaited.keys() == self._store.pending_reads().keys(), "every read is waited for"
        asked = [
            (replica.group, token)
            for replica, token in reads.values()
            if groups.get(replica.group) is replica
        ]
        serving = [(group, token) for group, replica in here for token in replica.state.serving]
        assert sorted(asked) == sorted(serving), "a group that serves an op has it read, once"
