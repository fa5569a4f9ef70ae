"""The code that ships, as a simulated node runs it: whole shards on their stores."""

from collections.abc import Sequence

import msgspec

from headrace.base.ids import ShardId
from headrace.base.placement import METADATA_SHARD, Placement
from headrace.metadata.admission import TopicDefaults
from headrace.metadata.settings import REPLICATED
from headrace.shard.config import DATA_STORE, METADATA_STORE, PlaneConfig
from headrace.shard.peer import PeerShard
from headrace.shard.settings import ShardSettings
from headrace.shard.shard import Shard
from headrace.shard.watch import Watch
from headrace.sim.nodes.options import NodeOptions
from headrace.sim.product import plane_config, store_config
from headrace.storage import store as storage
from headrace.storage.config import StoreConfig


def store_of(shard: int) -> int:
    """Return the number of a shard's own store among those of the node; 0 is the metadata's."""
    return DATA_STORE + shard


class Product:
    """Makes shards of one cluster."""

    def __init__(self, options: NodeOptions, root: tuple[str, str]) -> None:
        self._options = options
        self._root = root

    def format(self, node: int, incarnation: int) -> list[dict[str, bytes]]:
        """Return the files of the stores of a new node: the metadata's, then the shards'."""
        return [
            storage.format_store(self._store_config(node, store, 1), incarnation)
            for store in self._stores()
        ]

    def _stores(self) -> range:
        return range(METADATA_STORE, store_of(self._options.shard_count))

    def open_stores(
        self, node: int, boot_identity: int, start: int, images: list[dict[str, bytes]]
    ) -> list[storage.Opened | storage.Wiped | storage.Refused]:
        """Judge what the disks returned; `start` rises with every start of the node."""
        configs = [self._store_config(node, store, boot_identity) for store in self._stores()]
        return [
            storage.open_store(msgspec.structs.replace(config, start=start), image)
            for config, image in zip(configs, images, strict=True)
        ]

    def start(
        self,
        place: tuple[int, int],
        seeds: Sequence[int],
        opened: Sequence[storage.Opened],
        watch: Watch,
    ) -> Shard | PeerShard:
        """Return a shard of a node on the opened stores of the node; each has a seed."""
        node, shard = place
        own = store_of(shard)
        settings = self._settings(node, shard, (seeds[METADATA_STORE], seeds[own]))
        if shard == METADATA_SHARD:
            return Shard(settings, opened[METADATA_STORE], opened[own], watch=watch)
        return PeerShard(settings, opened[own], watch=watch)

    def _settings(self, node: int, shard: int, seeds: tuple[int, int]) -> ShardSettings:
        sizes = self._options.sizes
        return ShardSettings(
            metadata=self._plane_config(node, METADATA_STORE, seeds[0]),
            data=self._plane_config(node, DATA_STORE, seeds[1]),
            placement=Placement(ShardId(shard), self._options.shard_count),
            topic_defaults=TopicDefaults(durability_minimum=REPLICATED),
            server_version="0.1.0",
            server_semver=1000,
            root_username=self._root[0],
            root_password_hash=self._root[1],
            password_bytes_min=3,
            piece_bytes=sizes.piece_bytes,
            index_step_bytes=sizes.index_step_bytes,
            indexes_max=sizes.indexes_max,
            tail_bytes_max=sizes.tail_bytes,
            poll_bytes_max=64 << 10,
            segment_bytes_max=sizes.segment_bytes,
            retained_bytes_max=sizes.retained_bytes,
            store_bytes=sizes.store_bytes,
            store_ticks=sizes.store_ticks,
            retention_ticks=sizes.retention_ticks,
            clock_tolerance=sizes.clock_tolerance,
            consumers_idle_ticks=sizes.consumers_idle_ticks,
        )

    def _plane_config(self, node: int, store: int, seed: int) -> PlaneConfig:
        return plane_config(self._options, self._options.sizes, node, seed, store)

    def _store_config(self, node: int, store: int, boot_identity: int) -> StoreConfig:
        return store_config(self._options, self._options.sizes, node, boot_identity, store)
