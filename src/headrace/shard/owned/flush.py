"""Has segments synced for checkpoints, and names the partitions for which that failed.

Flow: store, checkpoint.
"""

from collections.abc import Mapping, Sequence

from headrace.partitions.machine import PartitionMachine
from headrace.partitions.shared import PartitionsShared
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding
from headrace.shard.consensus.checkpoints import Phase
from headrace.shard.consensus.plane import Plane
from headrace.shard.owned.local import Local


class Flushes:
    """What the running checkpoint waits for; `findings` are for the log."""

    def __init__(
        self,
        plane: Plane,
        shared: PartitionsShared,
        partitions: Mapping[int, Local],
        probes: Probes,
        findings: list[Finding],
    ) -> None:
        self._plane = plane
        self._shared = shared
        self._partitions = partitions
        self._probes = probes
        self._findings = findings
        self._flushes: dict[int, tuple[Local, int]] = {}
        self._fenced: dict[int, Local] = {}

    def flush(self, groups: Sequence[int]) -> bool:
        """Have the segments of partitions synced as far as now; whether all given so far are.

        Nobody waits for a partition that is fenced: `lacking` names it.
        """
        for group in groups:
            local = self._partitions.get(group)
            token = None if local is None or local.fence is not None else local.machine.flush()
            if local is not None and token is not None:
                assert group not in self._flushes, "a checkpoint flushes a partition once"
                self._flushes[group] = (local, token)
        return not self._flushes

    def lacking(self) -> list[int]:
        """Return the partitions whose segments never got all that was flushed (P7)."""
        found = [group for group, local in self._fenced.items() if local.machine.is_lacking]
        if found:
            self._probes.hit("partitions.lacking_in_checkpoint")
        return found

    def go_on(self, group: int) -> None:
        """Go on with a checkpoint, if this partition was the last that it waited for."""
        local, token = self._flushes.get(group, (None, 0))
        if local is None:
            return
        is_gone = self._partitions.get(group) is not local
        if is_gone or local.fence is not None or local.machine.is_flushed(token):
            del self._flushes[group]
            if not self._flushes:
                self._plane.on_flushed()

    def forget(self, group: int) -> None:
        """Forget a partition that is gone: no answer of the disk will lead to `go_on`."""
        self._fenced.pop(group, None)
        self.go_on(group)
        assert group not in self._flushes, "nobody waits for a partition that is gone"

    def note_fences(self) -> None:
        """Report partitions that serve nothing any more (P7).

        What the segments of such a one lack stays in the journal: a restart writes them again.
        """
        fenced, self._shared.fenced = self._shared.fenced, {}
        for owner in fenced:
            assert isinstance(owner, PartitionMachine)
            local = self._partitions[owner.options.namespace]
            assert local.machine is owner, "a partition has one machine"
            assert local.fence is not None
            self._fenced[local.target.group] = local
            self._findings.append(Finding("fenced", local.name, 0, local.fence))

    def on_checkpointed(self) -> None:
        """Remove files that the checkpoint no longer names."""
        assert not self._flushes, "a checkpoint that is durable waits for nobody"
        for owner in self._shared.end_checkpoint():
            assert isinstance(owner, PartitionMachine)
            owner.on_checkpointed()

    def check(self) -> None:
        """Assert that a checkpoint waits for partitions that are here and not durable yet."""
        for group, (local, token) in self._flushes.items():
            assert self._partitions.get(group) is local, "nobody waits for what is gone"
            assert not local.machine.is_flushed(token), "what is durable is not waited for"
            assert local.fence is None, "nobody waits for a partition that is fenced"
        phase = self._plane.checkpoints.phase
        is_taken = phase in (Phase.CAPTURING, Phase.FLUSHING)
        assert is_taken or not self._flushes, "only what is captured is flushed"
        assert phase is not Phase.FLUSHING or self._flushes, "a checkpoint waits for somebody"
        fenced = [group for group, local in self._partitions.items() if local.fence is not None]
        assert sorted(fenced) == sorted(self._fenced), "every fence is known, and reported"
        for group, local in self._fenced.items():
            assert self._partitions.get(group) is local, "what is gone lacks nothing"
            assert local.target.group == group, "a partition is found by its number"
