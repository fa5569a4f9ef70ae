"""The code that ships, as a simulated node runs it: a shard on its store."""

from collections.abc import Iterable, Mapping

from headrace.ports.disk import DiskEffect, DiskEvent
from headrace.ports.network import NetworkEffect, NetworkEvent
from headrace.ports.probes import Probes
from headrace.ports.recovered import Finding
from headrace.shard.config import GroupConfig
from headrace.shard.consensus.plane import Plane
from headrace.sim.groups.options import Options
from headrace.sim.groups.system import Boot, GroupFace, Refused, Running, Wiped
from headrace.sim.product import plane_config, store_config
from headrace.storage import store as storage
from headrace.storage.config import StoreConfig, journal_name
from headrace.vsr.replica import Replica
from headrace.vsr.sessions import ClientTable
from headrace.vsr.state import Status


class _Face:
    """One group as the world sees it."""

    __slots__ = ("_replica", "_state")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._state = replica.state

    @property
    def view(self) -> int:
        return self._state.view

    @property
    def log_view(self) -> int:
        return self._state.log_view

    @property
    def op(self) -> int:
        return self._state.log.head

    @property
    def whole_op(self) -> int:
        return self._state.log.whole_up_to(self._state.commit_min)

    @property
    def commit_min(self) -> int:
        return self._state.commit_min

    @property
    def commit_max(self) -> int:
        return self._state.commit_max

    @property
    def is_settled(self) -> bool:
        return self._state.status == Status.NORMAL

    @property
    def is_serving(self) -> bool:
        return self._replica.is_serving

    @property
    def is_voter(self) -> bool:
        state = self._state
        # An op that is known but damaged is neither a copy nor proof that there never was one.
        is_damaged = any(
            entry.body is None and not entry.is_never_held
            for op, entry in state.log.entries.items()
            if op > state.commit_max
        )
        return not (state.is_suspect or state.is_wiped or is_damaged)

    @property
    def is_wiped(self) -> bool:
        return self._state.is_wiped

    def table(self) -> bytes:
        """Give the client table."""
        return self._state.table.encode()


class _Running:
    """A shard as the world sees it."""

    def __init__(self, shard: Plane, findings: Iterable[Finding]) -> None:
        self._shard = shard
        self._found = Probes()
        for finding in findings:
            self._found.hit(f"recovered: {finding.kind}")
        self._faces: Mapping[int, GroupFace] = {
            group: _Face(replica) for group, replica in shard.groups.items()
        }

    def start(self) -> list[DiskEffect | NetworkEffect]:
        """Give what is to be done first."""
        return [*self._shard.start()]

    def step(self, event: DiskEvent | NetworkEvent) -> list[DiskEffect | NetworkEffect]:
        """Take one event; give what must now happen, in order."""
        return [*self._shard.step(event)]

    @property
    def probes(self) -> Probes:
        """Give the marks of consensus and of storage, and what recovery noticed, together."""
        both = Probes()
        for part in (self._shard.probes, self._shard.store.probes, self._found):
            for name, count in part.counts.items():
                both.counts[name] = both.counts.get(name, 0) + count
        return both

    def faces(self) -> Mapping[int, GroupFace]:
        """Give its groups."""
        return self._faces


class Product:
    """Makes nodes of one cluster."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._groups = tuple(
            GroupConfig(group, group not in options.replicated_groups) for group in options.groups
        )

    def format(self, node: int, incarnation: int) -> dict[str, bytes]:
        """Give the files of a new node."""
        return storage.format_store(self._store_config(node, 1), incarnation)

    def open(self, boot: Boot) -> Running | Wiped | Refused:
        """Start a node from its disk."""
        opened = storage.open_store(self._store_config(boot.node, boot.boot_identity), boot.files)
        if isinstance(opened, storage.Wiped):
            return Wiped()
        if isinstance(opened, storage.Refused):
            return Refused(str(opened))
        config = plane_config(self._options, self._options.store, boot.node, boot.seed)
        plane = Plane(config, opened)
        for group in self._groups:
            plane.add_group(group, boot.machines(group.group), ClientTable())
        return _Running(plane, opened.findings)

    def journal_name(self, file: int) -> str:
        """Give the name of a journal file."""
        return journal_name(file)

    def _store_config(self, node: int, boot_identity: int) -> StoreConfig:
        return store_config(self._options, self._options.store, node, boot_identity)
