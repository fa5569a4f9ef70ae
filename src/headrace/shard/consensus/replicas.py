"""Makes the replicas of a plane, each with its past: what the disk has, judged by its class.

Flow: recover.
"""

import msgspec

from headrace.base.prng import Prng
from headrace.ports.machine import RequestTable, StateMachine
from headrace.ports.recovered import RecoveredGroup, ViewState
from headrace.shard.config import GroupConfig, PlaneConfig
from headrace.storage.store import Opened
from headrace.vsr.quorum import quorums_of
from headrace.vsr.replica import Replica
from headrace.vsr.state import GroupOptions, Shared
from headrace.wire.replica.prepares import PREPARE


class ReplicaMaker:
    """Makes replicas that share the time, the journal and the seed of one plane."""

    def __init__(self, config: PlaneConfig, opened: Opened, shared: Shared, prng: Prng) -> None:
        assert 0 <= config.replica < config.replica_count, "a node is one of its cluster"
        self._config = config
        self._opened = opened
        self._shared = shared
        self._prng = prng
        self._incarnation = prng.fork("incarnation").u64() | 1

    def make(
        self,
        config: GroupConfig,
        machine: StateMachine,
        table: RequestTable,
        past: RecoveredGroup | None,
    ) -> tuple[Replica, RecoveredGroup | None]:
        """Return the replica of a group, and its past as it must be taken after this start."""
        assert past is None or past.state.group == config.group, "a group takes up its own past"
        if past is None:
            past = _forgotten(config.group, self._opened)
        past = _after_power_loss(past, is_persisted=config.is_persisted)
        prng = self._prng.fork(f"group {config.group}")
        replica = Replica(self._options(config), machine, table, prng, self._shared)
        replica.restore(past, is_replaced=self._opened.incarnation > 0)
        assert replica.commit_min <= replica.op, "what is applied is in the log"
        if past is not None:
            assert replica.view == past.state.view, "a replica goes on in the view that it entered"
            is_alone = self._config.replica_count == 1
            is_lost = past.state.is_tail_lost and is_alone
            assert replica.state.is_tail_lost == is_lost, "others have what one of several lost"
        return replica, past

    def _options(self, config: GroupConfig) -> GroupOptions:
        plane = self._config
        return GroupOptions(
            cluster=plane.cluster,
            group=config.group,
            replica=plane.replica,
            quorums=quorums_of(plane.replica_count),
            timeouts=plane.timeouts,
            incarnation=self._incarnation,
            origin=config.origin,
            pipeline_max=plane.pipeline_max,
            queue_max=plane.queue_max,
            repair_ops_max=plane.repair_ops_max,
            chunk_bytes=plane.chunk_bytes,
        )


def origin_of(past: RecoveredGroup) -> int | None:
    """Return which incarnation of its name a group on the disk is, if its ops tell."""
    if past.entries:
        return past.entries[-1].header.origin
    if past.checkpoint is not None and past.checkpoint.commit_header:
        return PREPARE.decode(past.checkpoint.commit_header).origin
    return None


def _forgotten(group: int, opened: Opened) -> RecoveredGroup | None:
    """Return the past of a group that the disk does not know of.

    There is none if the store was never open before, and a replaced one knows that it forgot.
    Otherwise the group may have lived without leaving a trace, for a primary sends what it has not
    journaled yet.
    """
    if not opened.is_suspect and (opened.is_first or opened.incarnation > 0):
        return None
    state = ViewState(
        group,
        0,
        0,
        0,
        is_suspect=opened.is_suspect,
        is_view_lost=opened.is_rotten,
        is_tail_lost=opened.is_power_loss,
    )
    return RecoveredGroup(state, None, ())


def _after_power_loss(past: RecoveredGroup | None, *, is_persisted: bool) -> RecoveredGroup | None:
    """Return the past of a group as its class has it: with syncs nothing of its own is lost."""
    if past is None or not past.state.is_tail_lost:
        return past
    if is_persisted:
        state = msgspec.structs.replace(past.state, is_tail_lost=False)
    else:
        state = msgspec.structs.replace(past.state, is_suspect=True)
    return msgspec.structs.replace(past, state=state)
