"""The code that ships, as a simulated node runs it: a whole shard on its two stores."""

import msgspec

from headrace.metadata.admission import TopicDefaults
from headrace.metadata.settings import REPLICATED
from headrace.shard.config import PlaneConfig
from headrace.shard.settings import ShardSettings
from headrace.shard.shard import Shard
from headrace.shard.watch import Watch
from headrace.sim.groups.options import CLUSTER
from headrace.sim.groups.product import short_timeouts
from headrace.sim.nodes.options import NodeOptions
from headrace.storage import store as storage
from headrace.storage.config import StoreConfig

STORES = (0, 1)  # the metadata group's and the partitions'


class Product:
    """Makes shards of one cluster."""

    def __init__(self, options: NodeOptions, root: tuple[str, str]) -> None:
        self._options = options
        self._root = root

    def format(self, node: int, incarnation: int) -> list[dict[str, bytes]]:
        """Give the files of the two stores of a new node."""
        return [
            storage.format_store(self._store_config(node, store, 1), incarnation)
            for store in STORES
        ]

    def open_stores(
        self, node: int, boot_identity: int, start: int, images: list[dict[str, bytes]]
    ) -> list[storage.Opened | storage.Wiped | storage.Refused]:
        """Judge what the two disks returned; `start` rises with every start of the node."""
        configs = [self._store_config(node, store, boot_identity) for store in STORES]
        return [
            storage.open_store(msgspec.structs.replace(config, start=start), image)
            for config, image in zip(configs, images, strict=True)
        ]

    def start(
        self, node: int, seeds: tuple[int, int], opened: list[storage.Opened], watch: Watch
    ) -> Shard:
        """Give a shard on its opened stores."""
        sizes = self._options.sizes
        settings = ShardSettings(
            metadata=self._plane_config(node, 0, seeds[0]),
            data=self._plane_config(node, 1, seeds[1]),
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
        return Shard(settings, opened[0], opened[1], watch=watch)

    def _plane_config(self, node: int, store: int, seed: int) -> PlaneConfig:
        sizes = self._options.sizes
        return PlaneConfig(
            cluster=CLUSTER,
            replica=node,
            replica_count=self._options.replica_count,
            timeouts=short_timeouts(self._options.heartbeat_ticks),
            seed=seed,
            journal=store,
            pipeline_max=sizes.pipeline_max,
            chunk_bytes=sizes.chunk_bytes,
            offsets_reserved=sizes.offsets_reserved,
            slice_groups_max=sizes.slice_groups_max,
        )

    def _store_config(self, node: int, store: int, boot_identity: int) -> StoreConfig:
        sizes = self._options.sizes
        return StoreConfig(
            cluster=CLUSTER,
            replica=node,
            replica_count=self._options.replica_count,
            journal_bytes_max=sizes.journal_bytes,
            journal_files=sizes.journal_files,
            record_bytes_max=sizes.record_bytes_max,
            boot_identity=boot_identity,
            journal=store,
        )
