"""Requests wait for a place in the log, are refused one, or are withdrawn."""

import msgspec

from headrace.base.prng import Prng
from headrace.sim.machine import AppendMachine
from headrace.vsr.events import (
    CheckpointDone,
    EntryRead,
    GroupEvent,
    OwnOp,
    RequestReceived,
    RoomMade,
    TailSettled,
)
from headrace.vsr.replica import Replica
from headrace.vsr.sessions import ClientTable
from headrace.wire.errors import Code, RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.replies import read_answer
from headrace.wire.requests import RequestHeader
from tests.vsr.cluster import Cluster, Node


def test_a_full_queue_refuses_and_what_waits_is_ordered_in_turn() -> None:
    """One op may be on its way, and 64 requests wait: the next is refused at once."""
    cluster = Cluster(3, pipeline_max=1)
    primary = cluster.nodes[0]
    for client in range(1, 67):
        cluster.request(0, client, 0, 0, b"")
    [refused] = primary.replies
    assert refused.client == 66
    assert refusal_of(refused.frame) == Code.TRANSIENT_NOT_ACCEPTED
    assert primary.replica.op == 1
    primary.replies.clear()
    cluster.deliver_all()
    assert [reply.client for reply in primary.replies] == list(range(1, 66))
    assert not [reply for reply in primary.replies if refusal_of(reply.frame)]
    assert primary.replica.commit_min == 65


def test_what_waits_can_be_withdrawn_and_what_is_ordered_cannot() -> None:
    cluster = Cluster(3, pipeline_max=1)
    primary = cluster.nodes[0]
    for client in (1, 2, 3, 4):
        cluster.request(0, client, 0, 0, b"")
    assert primary.replica.withdraw(3, 0, 0)
    assert not primary.replica.withdraw(3, 0, 0)
    assert not primary.replica.withdraw(1, 0, 0)
    cluster.deliver_all()
    assert [reply.client for reply in primary.replies] == [1, 2, 4]


def test_a_number_that_waits_in_two_groups_is_known_until_both_are_done() -> None:
    """Clients of some languages send to all partitions under one number."""
    first = Node(0, 1, 1, pipeline_max=1)
    options = msgspec.structs.replace(first.options, group=7)
    second = Replica(options, AppendMachine(), ClientTable(), Prng(2), first.shared)
    for replica in (first.replica, second):
        replica.start()
        for client in (1, 2):
            header = RequestHeader(client=client, operation=Operation.REGISTER)
            replica.step(RequestReceived(header, b""))
    assert first.shared.queued == {(2, 0): 7}
    assert first.replica.withdraw(2, 0, 0)
    assert first.shared.queued == {(2, 0): 7}
    assert second.withdraw(2, 0, 0)
    assert not first.shared.queued


def test_a_session_that_is_not_applied_here_is_tried_again() -> None:
    """Whoever minted it leads, or this replica lags: nobody is evicted for that."""
    cluster = Cluster(3)
    cluster.request(0, 1, 1, 99, b"")
    [reply] = cluster.nodes[0].replies
    assert refusal_of(reply.frame) == Code.TRANSIENT_NOT_ACCEPTED
    assert cluster.nodes[0].replica.op == 0


def test_a_full_table_refuses_a_login_while_all_clients_are_connected() -> None:
    node = Node(0, 1, 1)
    node.replica = Replica(node.options, AppendMachine(), ClientTable(1), Prng(1), node.shared)
    cluster = Cluster(1)
    cluster.nodes = [node]
    node.begin(None, is_replaced=False)
    for client in (1, 2):
        cluster.request(0, client, 0, 0, b"")
    found = [(reply.client, refusal_of(reply.frame)) for reply in node.replies]
    assert found == [(1, None), (2, Code.TRANSIENT_NOT_ACCEPTED)]


def test_an_op_of_the_server_is_dropped_where_it_has_no_place() -> None:
    """It is proposed again: by the next primary, or when there is a place."""
    cluster = Cluster(3, pipeline_max=1)
    own = OwnOp(Operation.DISCONNECT, b"", 1)
    for node in cluster.nodes[1:]:
        node.step(own)
        assert node.replica.op == 0
    primary = cluster.nodes[0]
    cluster.request(0, 1, 0, 0, b"")
    primary.step(own)
    assert primary.replica.op == 1
    cluster.deliver_all()
    primary.step(own)
    assert primary.replica.op == 2


def test_news_that_nobody_waits_for_changes_nothing() -> None:
    replica = Cluster(3).nodes[0].replica
    events: list[GroupEvent] = [RoomMade(), TailSettled(), CheckpointDone(), EntryRead(9, b"", b"")]
    assert [replica.step(event) for event in events] == [[], [], [], []]


def refusal_of(frame: bytes) -> Code | None:
    try:
        read_answer(frame)
    except RefusedError as refused:
        return refused.code
    return None
