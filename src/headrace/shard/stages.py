"""The stages of a turn that take what the planes did: applied, stored and answered.

```
metadata -> revocation -> reconcile -> data -> store -> polls -> store again -> flushes -> purges
```

The shard runs them in this order. A stage runs only if something woke it; what it makes for an
earlier one is for the next turn, except that `store again` follows the polls.

Flow: apply, store, reply.
"""

from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.consensus.plane import Plane
from headrace.shard.delivery import Delivery, PartitionDelivery
from headrace.shard.front.polls import Polls
from headrace.shard.logins.room import LoginRoom
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.owned.partitions import Partitions
from headrace.shard.timekeeper import Timekeeper
from headrace.shard.turn import Wake


class MetadataStage:
    """Takes what the metadata group did; a shard without that group has no such stage."""

    def __init__(
        self,
        metadata: MetadataGroup,
        room: LoginRoom,
        timekeeper: Timekeeper,
        partitions: Partitions,
        delivery: Delivery,
    ) -> None:
        self._plane = metadata.plane
        self._room = room
        self._revocation = room.revocation
        self._timekeeper = timekeeper
        self._partitions = partitions
        self._delivery = delivery
        self.has_begun = False  # whether metadata is here, as far as this node knows it

    def close(self) -> None:
        """Apply and answer, and wake those who look at the metadata."""
        plane = self._plane
        effects = plane.close_turn()
        self._revocation.learn()
        self._delivery.emit(METADATA_STORE, effects)
        self._timekeeper.after_turn()
        self._partitions.storing.is_awake = True  # A full store has files removed at once.
        if plane.touched:
            plane.touched.clear()
            self._partitions.reconciling.is_awake = True
        if not self.has_begun and plane.has_begun:
            self.has_begun = True
            self._room.begin()
        assert self.has_begun == plane.inbox.has_begun, "clients get in once the group lives"

    def check(self) -> None:
        """Assert that the room of logins begins with the group."""
        is_begun = self._plane.has_begun
        assert not self.has_begun or is_begun, "nobody gets in before the group lives"
        assert not self._plane.touched, "what the metadata group did is looked at in its turn"
        assert self.has_begun or not is_begun, "a group that lives lets clients in"


class DataStages:
    """Take what the groups of partitions did, as far as their segments and their readers."""

    def __init__(
        self, plane: Plane, partitions: Partitions, polls: Polls, delivery: PartitionDelivery
    ) -> None:
        self._plane = plane
        self._partitions = partitions
        self._polls = polls
        self._delivery = delivery
        self._checkpoints_done = 0
        self.again = Wake()

    def close(self) -> None:
        """Apply and answer."""
        plane = self._plane
        self._delivery.emit(DATA_STORE, plane.close_turn())
        done_count = plane.checkpoints.done_count
        assert self._checkpoints_done <= done_count, "checkpoints are counted up"
        if done_count != self._checkpoints_done:
            self._checkpoints_done = done_count
            self._partitions.flushes.on_checkpointed()
        if plane.touched or plane.is_stirred or self._partitions.shared.busy:
            plane.is_stirred = False
            self._partitions.storing.is_awake = True

    def store(self) -> None:
        """Hand batches to segments, and wake the polls that wait for any of that."""
        partitions, polls = self._partitions, self._polls
        partitions.after_turn()
        if partitions.polled or partitions.removed or polls.commits.pending:
            polls.is_awake = True
        self.again.is_awake = bool(self._plane.inbox.queue)

    def serve_polls(self) -> None:
        """Answer the polls that can be answered now."""
        self._polls.after_turn()
        assert not self._polls.is_awake, "a poll that can be answered is"
        queue, busy = self._plane.inbox.queue, self._partitions.shared.busy
        self.again.is_awake = bool(queue or busy)

    def store_again(self) -> None:
        """Store the offsets of polls that were resumed, and read what others asked for."""
        self.close()
        self.store()
        self.again.is_awake = False  # What comes of this is for the next turn.

    def check(self) -> None:
        """Assert that partitions are told of every checkpoint."""
        done, plane = self._checkpoints_done, self._plane
        assert done <= plane.checkpoints.done_count, "nobody is told of one that is not durable"
        assert plane.inbox.is_awake or done == plane.checkpoints.done_count, "partitions are told"
        assert not self.again.is_awake, "what is stored again is stored in the same turn"
        assert plane.inbox.is_awake or not plane.is_stirred, "what the disk answered is looked at"
