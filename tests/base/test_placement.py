"""Which shard owns a group: vectors, one owner in range, an even spread."""

import subprocess
import sys
from collections import Counter

import mmh3  # in the lock by way of pyiceberg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.ids import (
    GATEWAY,
    METADATA_GROUP,
    NOBODY,
    GroupId,
    Namespace,
    PartitionId,
    ShardId,
    StreamId,
    TopicId,
    pack_namespace,
)
from headrace.base.placement import (
    METADATA_SHARD,
    SHARDS_MAX,
    Placement,
    murmur3_32,
    owner_of,
)

GROUPS = st.builds(
    lambda stream, topic, partition: pack_namespace(
        Namespace(StreamId(stream), TopicId(topic), PartitionId(partition))
    ),
    st.integers(0, 2**20 - 1),
    st.integers(0, 4095),
    st.integers(0, 999_999),
)


@pytest.mark.parametrize(
    ("group", "shifted"),
    [(0, 25477), (1, 21255), (2**20, 15097), (2**32, 15064), (2**32 + 2 * 2**20 + 3, 4377)],
)
def test_the_owner_is_the_upper_half_of_the_hash_modulo_the_shards(
    group: int, shifted: int
) -> None:
    """SH-10, with its vectors."""
    assert murmur3_32(group) >> 16 == shifted
    for shard_count in (1, 2, 3, 8, 64, SHARDS_MAX):
        assert owner_of(GroupId(group), shard_count) == shifted % shard_count


@given(st.integers(0, 2**64 - 1))
def test_the_hash_is_the_one_that_others_compute(number: int) -> None:
    """SH-10."""
    assert murmur3_32(number) == mmh3.hash(number.to_bytes(8, "little"), 0, signed=False)


@given(GROUPS, st.integers(1, 64))
def test_every_group_has_one_owner_in_range(group: GroupId, shard_count: int) -> None:
    """SH-3."""
    owner = owner_of(group, shard_count)
    assert 0 <= owner < shard_count
    assert owner == owner_of(GroupId(int(group)), shard_count)


def test_another_process_finds_the_same_owners() -> None:
    """SH-3: the answer depends on nothing that a process has for itself."""
    program = (
        "from headrace.base.placement import owner_of\n"
        "print([owner_of(group, 7) for group in range(50)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == str([owner_of(GroupId(group), 7) for group in range(50)])


@pytest.mark.parametrize("shard_count", [2, 3, 4, 8])
def test_partitions_spread_evenly(shard_count: int) -> None:
    """SH-3: 8,000 partitions of 8 topics; no shard has a tenth more or less than its share."""
    owners = Counter(
        owner_of(
            pack_namespace(Namespace(StreamId(0), TopicId(topic), PartitionId(partition))),
            shard_count,
        )
        for topic in range(8)
        for partition in range(1000)
    )
    share = 8000 / shard_count
    assert sorted(owners) == list(range(shard_count))
    assert all(0.9 * share < count < 1.1 * share for count in owners.values())


def test_the_metadata_group_is_on_shard_0_for_every_count() -> None:
    """SH-13: hashed like a partition it would be elsewhere, and its frames lost for ever."""
    hashed = [(murmur3_32(METADATA_GROUP) >> 16) % shard_count for shard_count in range(2, 9)]
    assert any(hashed)  # so this test can tell the difference
    for shard_count in (1, *range(2, 9), SHARDS_MAX):
        assert owner_of(METADATA_GROUP, shard_count) == METADATA_SHARD == 0


@pytest.mark.parametrize("shard_count", [0, -1, SHARDS_MAX + 1])
def test_a_count_that_cannot_be_is_a_fault(shard_count: int) -> None:
    """SH-8."""
    with pytest.raises(AssertionError):
        owner_of(GroupId(0), shard_count)


@pytest.mark.parametrize("group", [-1, 2**52, 999_999 + 1, METADATA_GROUP + 1])
def test_what_is_no_group_has_no_owner(group: int) -> None:
    """SH-9: it is a fault, and never masked."""
    with pytest.raises(AssertionError):
        owner_of(GroupId(group), 2)


def test_no_shard_has_the_number_of_the_gateway_or_of_nobody() -> None:
    """SH-8: the highest shard is below both."""
    highest = ShardId(SHARDS_MAX - 1)
    assert (highest, GATEWAY, NOBODY) == (65_533, 65_534, 65_535)


def test_a_shard_owns_what_is_placed_on_it_and_one_alone_owns_all() -> None:
    """SH-3."""
    group = pack_namespace(Namespace(StreamId(1), TopicId(2), PartitionId(3)))
    assert Placement().owns(group)
    owners = [shard for shard in range(5) if Placement(ShardId(shard), 5).owns(group)]
    assert owners == [owner_of(group, 5)] == [Placement(ShardId(0), 5).owner(group)]
