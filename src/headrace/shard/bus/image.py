"""The metadata of a shard without the metadata group: what shard 0 has fed it, in order.

The first image comes whole; then every op that the group applies. An op that does not follow the
last one is not applied: what is missing is asked for (O5.2).

Flow: apply.
"""

from headrace.metadata.machine import MetadataMachine
from headrace.metadata.state import State
from headrace.ports.machine import Artifact
from headrace.ports.network import Buffer
from headrace.shard.consensus.clock import Clock
from headrace.wire.replica.artifacts import ArtifactKind
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.requests import RequestHeader

FRESH_TICKS = 100  # an image that was not confirmed for so long is not acted upon any more


class MetadataImage:
    """See `Metadata` for what the rooms ask; `Feed` is the other end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.machine = MetadataMachine()
        self.commit = 0
        self.last_op = 0  # the last op that the machine was fed
        self.is_caught_up = False  # whether the first image is here
        self.is_awake = False  # whether it has changed since the shard has looked
        self.is_current = False  # while requests are judged that waited for shard 0's commit
        self.is_without_space = False  # The store of the group is not here.
        self.is_serving = False
        self.log_stamp = 0
        self._confirmed = 0  # the tick at which shard 0 was last heard

    @property
    def state(self) -> State:
        """Return what the metadata group has decided, as far as it is applied here."""
        return self.machine.state

    @property
    def is_fresh(self) -> bool:
        """Whether shard 0 has confirmed the image lately: else it may have decided anything."""
        return self.is_caught_up and self._clock.now - self._confirmed <= FRESH_TICKS

    def age(self) -> int:
        """Return how many ticks ago shard 0 has confirmed the image, or sent a part of it."""
        assert self._confirmed <= self._clock.now, "nobody is heard in the future"
        return self._clock.now - self._confirmed

    def install(self, op: int, commit: int, data: bytes) -> None:
        """Take a whole image.

        Raises:
            CorruptError: It is damaged; nothing has changed.
        """
        self.machine.install((Artifact(ArtifactKind.METADATA_SNAPSHOT, op, data),))
        assert commit >= self.commit, "shard 0 does not go back"
        assert op >= self.last_op, "an image takes nothing back"
        assert self.machine.op == op, "an image has the op that it was made at"
        self.last_op = op
        self._advance(commit)
        self.is_caught_up = True

    def apply(self, previous: int, header: PrepareHeader, body: Buffer) -> bool:
        """Apply the op that follows; return whether it did, or was applied before."""
        if header.op <= self.last_op:
            return True
        if previous != self.last_op or not self.is_caught_up:
            return False
        assert previous < header.op, "ops are fed in order"
        self.machine.apply(header, body)
        self.machine.take_applied()  # Shard 0 writes the audit log.
        self.last_op = header.op
        self._advance(max(self.commit, header.op))
        return True

    def confirm(self, op: int, commit: int) -> bool:
        """Take how far shard 0 is; return whether the image is there too."""
        if op != self.last_op or not self.is_caught_up:
            return False
        assert commit >= self.commit, "shard 0 does not go back"
        if commit > self.commit:
            self._advance(commit)
        self._confirmed = self._clock.now
        return True

    def _advance(self, commit: int) -> None:
        assert self.last_op <= commit, "only what is committed is fed"
        assert self.commit <= commit, "what is committed stays so"
        self.commit = commit
        self.is_awake = True
        self._confirmed = self._clock.now

    def put_request(self, header: RequestHeader, body: Buffer) -> None:
        """Refuse: requests for the group are forwarded to it."""
        raise AssertionError("the metadata group is not on this shard")

    def answer_again(self, header: RequestHeader, body: Buffer) -> bool:
        """Refuse: requests for the group are forwarded to it."""
        raise AssertionError("the metadata group is not on this shard")

    def check(self) -> None:
        """Assert that nothing was applied that is not committed, and nothing before an image."""
        assert self.last_op <= self.commit, "only what is committed is fed"
        assert self.machine.op == self.last_op, "what was fed is applied"
        assert self.is_caught_up or not self.is_fresh, "nothing is fresh before an image"
        assert self.state.revision <= self.commit, "only an op changes what partitions must be"
        assert self.is_caught_up or not self.last_op, "ops follow an image"
        assert self._confirmed <= self._clock.now, "nobody is heard in the future"
        assert not self.is_current, "only while a request is judged"
