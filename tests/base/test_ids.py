import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.ids import (
    METADATA_GROUP,
    GroupId,
    Namespace,
    PartitionId,
    StreamId,
    TopicId,
    is_partition_group,
    pack_namespace,
    unpack_namespace,
)


def namespace(stream: int, topic: int, partition: int) -> Namespace:
    return Namespace(StreamId(stream), TopicId(topic), PartitionId(partition))


@given(st.integers(0, 2**20 - 1), st.integers(0, 4095), st.integers(0, 999_999))
def test_a_namespace_survives_packing(stream: int, topic: int, partition: int) -> None:
    group = pack_namespace(namespace(stream, topic, partition))
    assert is_partition_group(group)
    assert unpack_namespace(group) == namespace(stream, topic, partition)


def test_packing_puts_each_id_in_its_place() -> None:
    assert pack_namespace(namespace(0, 0, 1)) == 1
    assert pack_namespace(namespace(0, 1, 0)) == 2**20
    assert pack_namespace(namespace(1, 2, 3)) == 2**32 + 2 * 2**20 + 3


@pytest.mark.parametrize(
    "out_of_range", [(2**20, 0, 0), (0, 4096, 0), (0, 0, 1_000_000), (-1, 0, 0)]
)
def test_an_id_out_of_range_is_never_masked(out_of_range: tuple[int, int, int]) -> None:
    """SH-9: masking would alias two partitions."""
    with pytest.raises(AssertionError):
        pack_namespace(namespace(*out_of_range))


def test_the_metadata_group_is_no_partition() -> None:
    assert not is_partition_group(METADATA_GROUP)
    assert not is_partition_group(999_999 + 1)
    with pytest.raises(AssertionError):
        unpack_namespace(GroupId(METADATA_GROUP))
