"""The code that ships, as a node of groups alone runs it: one plane on its store."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from headrace.ports.disk import DiskEffect, DiskEvent
from headrace.ports.network import NetworkEffect, NetworkEvent
from headrace.ports.recovered import Finding
from headrace.shard.config import GroupConfig
from headrace.shard.consensus.plane import Plane
from headrace.sim.faces import Face
from headrace.sim.groups.options import Options
from headrace.sim.groups.system import Boot, PlaneRunning, TableFace
from headrace.sim.product import plane_config, store_config
from headrace.sim.software import Refused, Wiped
from headrace.storage import store as storage
from headrace.storage.config import StoreConfig, journal_name
from headrace.vsr.sessions import ClientTable


class _Running:
    """A plane as the world sees it."""

    def __init__(self, plane: Plane, findings: Iterable[Finding]) -> None:
        self._plane = plane
        self._found = Counter(f"recovered: {finding.kind}" for finding in findings)
        self._faces: Mapping[int, TableFace] = {
            group: Face(replica) for group, replica in plane.groups.items()
        }

    def start(self) -> list[DiskEffect | NetworkEffect]:
        """Return what is to be done first."""
        return [*self._plane.start()]

    def step(self, event: DiskEvent | NetworkEvent) -> list[DiskEffect | NetworkEffect]:
        """Take one event; return what must now happen, in order."""
        return [*self._plane.step(event)]

    @property
    def probes(self) -> Mapping[str, int]:
        """The marks of consensus and of storage, and what recovery noticed, together."""
        return (
            self._found
            + Counter(self._plane.probes.counts)
            + Counter(self._plane.store.probes.counts)
        )

    @property
    def may_vote(self) -> bool:
        """Whether it votes in all its groups."""
        return all(face.is_voter for face in self._faces.values())

    def faces(self) -> Mapping[int, TableFace]:
        """Return its groups."""
        return self._faces

    def components(self) -> Iterator[object]:
        """Return the parts that may check themselves."""
        yield from (self._plane, self._plane.store)
        if self._plane.has_begun:
            for replica in self._plane.groups.values():
                yield from (replica, replica.machine)


class Product:
    """Makes nodes of one cluster."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._groups = tuple(
            GroupConfig(group, group not in options.replicated_groups) for group in options.groups
        )

    def format(self, node: int, incarnation: int) -> dict[str, bytes]:
        """Return the files of a new node."""
        return storage.format_store(self._store_config(node, 1), incarnation)

    def open(self, boot: Boot) -> PlaneRunning | Wiped | Refused:
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
        """Return the name of a journal file."""
        return journal_name(file)

    def _store_config(self, node: int, boot_identity: int) -> StoreConfig:
        return store_config(self._options, self._options.store, node, boot_identity)
