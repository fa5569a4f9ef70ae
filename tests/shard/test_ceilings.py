"""Offsets that a partition may have given out are known by its own ceiling alone (FM-7)."""

from headrace.metadata.admission import TopicDefaults
from headrace.shard.config import DATA_STORE, METADATA_STORE
from headrace.shard.consensus.ceilings import Ceilings
from headrace.wire.commands.streams import CREATE_STREAM, CreateStream
from headrace.wire.commands.topics import CREATE_TOPIC, DELETE_TOPIC, CreateTopic, DeleteTopic
from tests.shard.whole import Whole


def test_a_ceiling_counts_once_it_is_durable() -> None:
    ceilings = Ceilings([(1, 50)], reserved=100)
    assert ceilings.durable(1) == 50
    assert ceilings.raise_over(1, 10) == 110
    ceilings.on_flushed(7)
    ceilings.on_synced(6)
    assert ceilings.durable(1) == 50
    ceilings.on_synced(7)
    assert ceilings.durable(1) == 110
    assert ceilings.raise_over(1, 60) is None


def test_a_partition_made_anew_has_nothing_of_its_namesake() -> None:
    """What was on its way to the disk for the old one says nothing of the new one."""
    ceilings = Ceilings([], reserved=100)
    ceilings.raise_over(1, 5000)
    ceilings.on_flushed(1)
    ceilings.raise_over(1, 9000)
    ceilings.forget(1)
    assert ceilings.raise_over(1, 0) == 100
    ceilings.on_flushed(2)
    ceilings.on_synced(1)
    assert ceilings.durable(1) == 0
    ceilings.on_synced(2)
    assert ceilings.durable(1) == 100


def test_a_partition_that_replaces_one_of_the_disk_has_a_ceiling_of_its_own() -> None:
    """A power cut takes the record that ends the old one; its ceiling must not count on."""
    defaults = TopicDefaults(
        durability="replicated",
        consumer_offset_durability="replicated",
        durability_minimum="replicated",
    )
    node = Whole(offsets_reserved=100, topic_defaults=defaults)
    client = node.client()
    client.ask(CREATE_STREAM, CreateStream("s"))
    client.ask(CREATE_TOPIC, CreateTopic("s", 1, "t"))
    client.send("s", "t", [b"old"] * 60)
    node.tick(20)
    before = node.disks[DATA_STORE].image()
    client.ask(DELETE_TOPIC, DeleteTopic("s", "t"))
    client.ask(CREATE_TOPIC, CreateTopic("s", 1, "t"))
    node.end(is_power_cut=True)
    node.set_files([node.disks[METADATA_STORE].image(), before])
    node.start()
    plane = node.shard.data_plane
    (group,) = plane.groups
    assert plane.ceiling_of(group) == 0
    client = node.client()
    client.send("s", "t", [b"new"])
    node.is_syncing = False
    lost = client.send("s", "t", [b"lost"])
    node.is_syncing = True
    node.crash(is_power_cut=True)
    node.tick(200)
    again = node.client().send("s", "t", [b"again"])
    assert again.base_offset > lost.base_offset, "an offset that was confirmed is given once"
