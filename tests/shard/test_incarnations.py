"""SH-19: what is refused of peers for a partition is counted, by what was wrong with it."""

import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.vsr.replica import Replica
from headrace.wire.errors import CorruptError
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.kinds import LAYOUTS
from tests.shard.peer_shots import seal_frame
from tests.shard.test_counters import read
from tests.shard.trio import Trio

STALE = "partition_frames_rejected_stale_total"
AHEAD = "partition_frames_rejected_ahead_total"
REFUSALS = "partition_transfer_refusals_total"


def partition_of(trio: Trio, node: int) -> Replica:
    _, partition = trio.groups(node)
    return partition


def frame(trio: Trio, kind: FrameKind, group: int, origin: int, **fields: int) -> bytes:
    """Return a frame of the second node about an incarnation of a group."""
    layout = LAYOUTS[kind]
    life = trio.nodes[1].shard.metadata.plane.shared.life
    known = {"cluster": 1, "replica": 1, "life": life, "group": group, "origin": origin, "view": 9}
    return seal_frame(layout, layout.made(**known, **fields), b"")


def test_frames_of_another_incarnation_are_counted_where_they_are_rejected() -> None:
    """SH-19, RC-20: an earlier one is an anomaly, a later one a race; neither reaches the group."""
    trio = Trio()
    group, origin = partition_of(trio, 0).group, partition_of(trio, 0).origin
    assert origin > 0
    kind = FrameKind.START_VIEW_CHANGE
    trio.fire(0, 1, frame(trio, kind, group, origin - 1))
    assert (trio.count(0, STALE), trio.count(0, AHEAD)) == (1, 0)
    trio.fire(0, 1, frame(trio, kind, group, origin + 100))
    assert (trio.count(0, STALE), trio.count(0, AHEAD)) == (1, 1)
    trio.fire(0, 1, frame(trio, kind, group + 1, origin + 100))
    assert (trio.count(0, STALE), trio.count(0, AHEAD)) == (1, 2), "of one that is not here yet"
    assert partition_of(trio, 0).state.suspicions == {}
    trio.fire(0, 1, frame(trio, kind, group, origin))
    assert partition_of(trio, 0).state.suspicions.keys() == {1}
    assert (trio.count(0, STALE), trio.count(0, AHEAD)) == (1, 2)


@pytest.mark.parametrize("is_of_metadata", [False, True])
def test_a_state_that_is_not_offered_is_counted(*, is_of_metadata: bool) -> None:
    """SH-19: a replica that does not lead offers no state; the metadata group is no partition."""
    trio = Trio()
    trio.send(b"first")
    replica = trio.groups(2)[0 if is_of_metadata else 1]
    assert (replica.group == METADATA_GROUP) == is_of_metadata
    asked = FrameKind.REQUEST_STATE_TRANSFER
    trio.fire(2, 1, frame(trio, asked, replica.group, replica.origin, nonce=5))
    assert trio.count(2, REFUSALS) == int(not is_of_metadata)
    trio.fire(0, 1, frame(trio, asked, replica.group, replica.origin, nonce=5))
    assert trio.count(0, REFUSALS) == 0, "who leads offers it"


@pytest.mark.slow
def test_a_state_that_is_not_taken_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """SH-19: pieces that are no state of a partition are refused, and it is repaired instead."""
    trio = Trio()
    trio.cut[2] = None
    for number in range(8):
        trio.send(b"missed %d" % number)
    trio.cut.clear()
    replica = partition_of(trio, 2)

    def refuse(pieces: object) -> None:
        monkeypatch.undo()
        raise CorruptError(f"{pieces} are no state")

    monkeypatch.setattr(replica.state.machine, "install", refuse)
    while not trio.count(2, "transfer.refused"):
        trio.step()
    assert trio.count(2, REFUSALS) == 1
    trio.tick(300)
    assert replica.commit_min == partition_of(trio, 0).commit_min


def test_counters_are_shown_before_they_count() -> None:
    """SH-19: whoever watches them finds all nine, at nothing."""
    trio = Trio()
    found = read(trio.login(0))
    assert {name: found[name] for name in (STALE, AHEAD, REFUSALS)} == {
        STALE: 0,
        AHEAD: 0,
        REFUSALS: 0,
    }
    assert found["partition_repair_serves_deferred_purge_total"] == 0
    assert found["partitions_materialised_total"] == 1
    for name in ("removed", "reconcile_failures", "duplicate_builds_discarded"):
        assert found[f"partitions_{name}_total"] == 0
    assert "partition_requests_denied_transient_total" in found
