"""What replicas rarely hear: acknowledgements, states and votes that do not fit their own log."""

from collections.abc import Iterable

import msgspec
import pytest

from headrace.base.limits import HEADER_BYTES
from headrace.ports.machine import Artifact
from headrace.ports.network import Buffer
from headrace.sim.machine import AppendMachine
from headrace.vsr.events import FrameReceived
from headrace.vsr.timeouts import Timer
from headrace.vsr.transfer_session import COMMIT_HEADER
from headrace.wire.errors import CorruptError
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.prepares import (
    PREPARE,
    PrepareHeader,
    PrepareOkHeader,
    RequestPreparesHeader,
)
from headrace.wire.replica.seals import seal
from headrace.wire.replica.views import StartViewHeader
from tests.vsr.commands import Commands
from tests.vsr.test_false_states import finish, offer, pulling


def commands(*lines: str) -> Commands:
    made = Commands()
    for line in lines:
        made.run(line)
    return made


def test_an_acknowledgement_of_another_op_of_the_same_number_does_not_count() -> None:
    made = commands(
        "cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver prepare"
    )
    cluster = made.cluster
    primary = cluster.nodes[0]
    for position in made.matching("prepare-ok"):
        sender, sent = cluster.flying[position]
        kind, header = decode_replica(sent.frame)
        assert isinstance(header, PrepareOkHeader)
        strange = msgspec.structs.replace(header, prepare_checksum=header.prepare_checksum ^ 1)
        primary.step(FrameReceived(sender, kind, strange, sent.frame))
    assert (primary.replica.op, primary.replica.commit_min) == (2, 1)
    cluster.deliver_all()
    assert primary.replica.commit_min == 2


def test_a_state_that_late_prepares_have_overtaken_is_not_installed() -> None:
    made = commands(
        *["cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver", "beat"],
        *["request 0 a 2 pear", "delay prepare 0->2", "deliver"],
        *["request 0 a 3 plum", "delay prepare 0->2", "deliver"],
        *["checkpoint 0", "checkpoint 1", "beat", "deliver request-prepares"],
        *["deliver range-evicted", "deliver request-state-transfer"],
        *["deliver state-transfer-target"],
    )
    node = made.cluster.nodes[2]
    assert made.matching("request-state-chunk", "2->0")
    assert node.replica.commit_min == 2
    made.run("late")
    for _ in range(2):
        made.cluster.deliver(made.matching("prepare")[0])
    made.cluster.beat()
    assert node.replica.commit_min == 4
    made.run("deliver")
    assert node.probes.counts["transfer.refused"] == 1
    assert node.replica.commit_min == 4
    made.run("request 0 a 4 fig")
    made.run("deliver")
    made.run("beat")
    assert node.replica.commit_min == 5


def test_a_state_of_another_history_is_not_installed() -> None:
    cluster, header, true = pulling()
    node = cluster.nodes[2]
    made = Commands()
    made.cluster = cluster
    made.sessions = {1: 1}
    made.run("request 0 a 4 fig")
    made.run("deliver prepare 0->2")
    cluster.flying.clear()
    assert node.replica.op == 5
    head = PREPARE.decode(true[0].data)
    strange = seal(PREPARE.encode(msgspec.structs.replace(head, timestamp=head.timestamp + 1)))
    offer(node, header, [Artifact(COMMIT_HEADER, 4, strange), *true[1:]])
    assert node.probes.counts["contradiction.state"] == 1
    assert node.replica.commit_min < 4
    offer(node, header, true)
    finish(cluster)


def test_a_log_that_ends_before_what_is_applied_begins_no_view() -> None:
    made = commands(
        "cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver", "beat"
    )
    node = made.cluster.nodes[2]
    assert node.replica.commit_min == 2
    first, _ = node.entries[1]
    header = StartViewHeader(cluster=1, view=1, replica=1, op=1, commit=1)
    node.step(FrameReceived(1, FrameKind.START_VIEW, header, bytes(HEADER_BYTES) + first))
    assert node.replica.commit_min == node.replica.op == 2
    assert node.replica.view == 0


def test_a_log_that_does_not_follow_what_is_applied_begins_no_view() -> None:
    made = commands(
        *["cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver", "beat"]
    )
    node = made.cluster.nodes[2]
    assert node.replica.commit_min == 2
    last = PREPARE.decode(node.entries[2][0])
    strange = seal(PREPARE.encode(msgspec.structs.replace(last, op=3, parent=last.parent)))
    header = StartViewHeader(cluster=1, view=1, replica=1, op=3, commit=2)
    node.step(FrameReceived(1, FrameKind.START_VIEW, header, bytes(HEADER_BYTES) + strange))
    assert node.probes.counts["contradiction.announcement"] == 1
    assert node.replica.op == 2
    assert node.replica.view == 0


def test_who_cannot_apply_a_committed_op_applies_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its state is not that of the others, whatever it may hear later."""
    made = commands("cluster 3", "register 0 a", "deliver", "beat")
    node = made.cluster.nodes[2]
    assert node.replica.commit_min == 1

    def refuse(header: PrepareHeader, body: Buffer) -> bytes:
        raise CorruptError("an op that no primary orders")

    with monkeypatch.context() as spoilt:
        spoilt.setattr(node.replica.state.machine, "apply", refuse)
        for line in ("request 0 a 1 apple", "deliver", "beat"):
            made.run(line)
    for line in ("request 0 a 2 pear", "deliver", "beat"):
        made.run(line)
    assert node.probes.counts["contradiction.op"] == 1
    assert [each.replica.commit_min for each in made.cluster.nodes] == [3, 3, 1]


def test_an_op_that_the_next_one_does_not_name_is_not_voted_for() -> None:
    """A crash came before what a new log has in its place was written."""
    made = commands(
        *["cluster 3", "register 0 a", "register 0 b", "deliver"],
        *["request 0 a 1 apple", "deliver prepare", "request 0 b 1 pear", "deliver prepare"],
        *["drop", "crash 2"],
    )
    cluster = made.cluster
    data, body = cluster.nodes[2].entries[3]
    head = PREPARE.decode(data)
    strange = seal(PREPARE.encode(msgspec.structs.replace(head, timestamp=head.timestamp + 1)))
    assert PREPARE.decode(cluster.nodes[2].entries[4][0]).parent == head.checksum
    cluster.nodes[2].entries[3] = (strange, body)
    for line in (
        "restart 2",
        "crash 0",
        "fire 2 probe 5",
        "silent 1",
        "deliver",
        "beat",
        "deliver",
    ):
        made.run(line)
    assert made.do_values() == ["1 apple pear", "2 apple pear"]


def test_only_the_primary_of_a_view_announces_it() -> None:
    made = commands(
        "cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver", "beat"
    )
    node = made.cluster.nodes[2]
    last, _ = node.entries[2]
    header = StartViewHeader(cluster=1, view=1, replica=1, op=2, commit=2)
    node.step(FrameReceived(0, FrameKind.START_VIEW, header, bytes(HEADER_BYTES) + last))
    assert node.replica.view == 0
    node.step(FrameReceived(1, FrameKind.START_VIEW, header, bytes(HEADER_BYTES) + last))
    assert node.replica.view == 1


def test_only_bodies_that_are_missing_are_requested() -> None:
    made = commands(
        *["cluster 3", "register 0 a", "register 0 b", "deliver", "beat"],
        *["request 0 a 1 apple", "deliver prepare 0->1"],
        *["request 0 b 1 pear", "deliver prepare 0->1", "drop", "crash 1"],
        *["restart 1 torn 3", "deliver request-start-view 1->0", "deliver start-view"],
    )
    assert made.cluster.nodes[1].replica.op == 4
    [position] = made.matching("request-prepares")
    _, header = decode_replica(made.cluster.flying[position][1].frame)
    assert isinstance(header, RequestPreparesHeader)
    assert (header.from_op, header.to_op) == (3, 3)


def test_a_prepare_of_a_view_that_we_have_not_entered_is_not_journaled() -> None:
    made = commands("cluster 3", "register 0 a", "deliver", "request 0 a 1 apple")
    [position] = made.matching("prepare", "0->2")
    _, sent = made.cluster.flying[position]
    kind, header = decode_replica(sent.frame)
    assert isinstance(header, PrepareHeader)
    node = made.cluster.nodes[2]
    node.step(FrameReceived(1, kind, msgspec.structs.replace(header, view=1), sent.frame))
    assert node.replica.op == 1
    node.step(FrameReceived(0, kind, header, sent.frame))
    assert node.replica.op == 2


def test_a_timer_of_resends_ends_with_what_is_to_be_resent() -> None:
    made = commands("cluster 3", "register 0 a")
    primary = made.cluster.nodes[0]
    made.run("fire 0 retransmit")
    assert Timer.RETRANSMIT in primary.timers
    made.run("deliver")
    assert primary.replica.commit_min == 1
    made.run("fire 0 retransmit")
    assert Timer.RETRANSMIT not in primary.timers


def test_a_new_primary_foresees_ops_with_their_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    foreseen: list[tuple[int, bytes]] = []

    def foresee(_: AppendMachine, ops: Iterable[tuple[PrepareHeader, Buffer]]) -> None:
        foreseen.extend((header.op, bytes(body)) for header, body in ops)

    monkeypatch.setattr(AppendMachine, "foresee", foresee)
    commands(
        *["cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver prepare 0->1"],
        *["drop", "crash 0", "silent 1", "silent 2", "deliver"],
    )
    assert [op for op, _ in foreseen] == [2]
    assert b"apple" in foreseen[0][1]


def test_a_view_does_not_start_without_room_for_what_it_adopts() -> None:
    made = commands(
        *["cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver prepare 0->2"],
        *["drop", "crash 0"],
    )
    node = made.cluster.nodes[1]
    node.shared._has_room = lambda *_, **__: False
    for line in ("silent 1", "silent 2", "deliver"):
        made.run(line)
    assert (node.replica.view, node.replica.log_view, node.replica.op) == (1, 0, 1)
    assert node.probes.counts["view_change.without_room"] > 0
