"""SH-18: drops are counted by kind of frame and reason."""

import re
from pathlib import Path

import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.ports.bus import BusRefused, DropReason, FrameLost
from headrace.shard.drops import FRAME_DROPS, Drop, Drops, Variant, variant_of
from headrace.wire.bus.decode import BUS_LAYOUTS, group_of
from headrace.wire.numbers import FrameKind
from tests.wire.bus_frames import PREPARED, bus_frame

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "bus.md").read_text()
PARTITION = 1 << 32 | 3


def test_a_pair_appears_with_its_first_drop() -> None:
    """SH-18."""
    drops = Drops()
    assert list(drops.counts()) == []
    assert drops.total == 0
    drops.count_event(BusRefused(1, FrameKind.GATHER, 0, DropReason.FULL))
    drops.count_event(FrameLost(1, FrameKind.PREPARE_OK, DropReason.MISROUTED, PARTITION))
    drops.count_event(BusRefused(2, FrameKind.GATHERED, 0, DropReason.FULL))
    drops.count(FrameKind.FORWARDED_REQUEST, DropReason.PARK_OVERFLOW, group=PARTITION)
    drops.count(FrameKind.FORWARDED_REQUEST, DropReason.DISCONNECTED)
    assert list(drops.counts()) == [
        Drop(Variant.CONSENSUS, DropReason.MISROUTED, 1),
        Drop(Variant.GATHER, DropReason.FULL, 2),
        Drop(Variant.METADATA_SUBMIT, DropReason.DISCONNECTED, 1),
        Drop(Variant.PARTITION, DropReason.PARK_OVERFLOW, 1),
    ]
    assert drops.total == 5


def test_the_variants_and_reasons_of_the_rule_exist() -> None:
    """SH-18: the names are those that dashboards know."""
    assert FRAME_DROPS == "frame_drops_total"
    variants = [variant.value for variant in Variant]
    assert variants[:7] == [
        "consensus",
        "partition",
        "fd_transfer",
        "forward_client_send",
        "forward_replica_send",
        "metadata_commit_tick",
        "replica_handshake_ack",
    ]
    assert [reason.value for reason in DropReason] == [
        "full",
        "disconnected",
        "unroutable",
        "delivery_failed",
        "misrouted",
        "park_overflow",
        "park_dropped",
    ]


@pytest.mark.parametrize("kind", [*range(5, 32), 255, 0])
def test_frames_of_replicas_are_consensus_but_for_prepares_of_partitions(kind: int) -> None:
    assert variant_of(kind, METADATA_GROUP) == Variant.CONSENSUS
    is_prepare = kind in (FrameKind.REQUEST, FrameKind.PREPARE, FrameKind.REPAIR_PREPARE)
    assert (variant_of(kind, PARTITION) == Variant.PARTITION) is is_prepare


def test_the_page_lists_the_variants() -> None:
    _, _, section = PAGE.partition("| variant | kinds |")
    section, _, _ = section.partition("| reason | when |")
    rows = re.findall(r"^\| `([a-z_]+)` \| ([^|]*) \|$", section, re.M)
    assert [name for name, _ in rows] == [variant.value for variant in Variant]
    for name, kinds in rows:
        for kind in map(int, re.findall(r"\b(3[23]|4[0-9]|5[0-2])\b", kinds)):
            group = PARTITION if name == "partition" else METADATA_GROUP
            assert variant_of(kind, group).value == name
    told = [
        int(kind) for _, kinds in rows for kind in re.findall(r"\b(3[23]|4[0-9]|5[0-2])\b", kinds)
    ]
    assert sorted(dict.fromkeys(told)) == sorted(BUS_LAYOUTS)


def test_the_page_lists_the_reasons() -> None:
    _, _, section = PAGE.partition("| reason | when |")
    named = re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| (`[^|]*)\|", section, re.M)))
    assert named == [reason.value for reason in DropReason]


def test_a_frame_says_which_group_it_is_for() -> None:
    request = bus_frame(FrameKind.FORWARDED_REQUEST, group=PARTITION)
    assert group_of(request) == PARTITION
    assert group_of(bus_frame(FrameKind.GATHER)) == METADATA_GROUP
    assert group_of(PREPARED) == 0
