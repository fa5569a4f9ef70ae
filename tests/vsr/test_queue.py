"""Requests wait for a place in the log; only so many do."""

from headrace.wire.errors import Code, RefusedError
from headrace.wire.replies import read_answer
from tests.vsr.cluster import Cluster


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


def refusal_of(frame: bytes) -> Code | None:
    try:
        read_answer(frame)
    except RefusedError as refused:
        return refused.code
    return None
