"""Each checker sees what it is for."""

import pytest

from headrace.base.ids import METADATA_GROUP
from headrace.sim.groups.checkers import Checkers
from headrace.sim.machine import AppendMachine, encode_append
from headrace.sim.violation import SimViolationError
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_reply
from headrace.wire.requests import REQUEST, RequestHeader

GROUP = METADATA_GROUP
BODY = encode_append(b"k", b"v")


class Face:
    def __init__(self, view: int = 0, log_view: int = 0, op: int = 0, commit: int = 0) -> None:
        self.view = view
        self.log_view = log_view
        self.op = self.whole_op = op
        self.commit_min = self.commit_max = commit
        self.is_wiped = False


class Story:
    """Tells a history of appends: op n has checksum 100 + n, and is client 1's request n."""

    def __init__(self, nodes: int = 3) -> None:
        self.checkers = Checkers()
        for node in range(nodes):
            self.checkers.made(node, GROUP)

    def invoke(self, *requests: int) -> "Story":
        for request in requests:
            self.checkers.invoked(GROUP, 1, request, BODY)
        return self

    def apply(self, node: int, op: int, **changed: int) -> "Story":
        request = changed.get("request", op)
        header = PrepareHeader(
            checksum=changed.get("checksum", 100 + op),
            parent=changed.get("parent", 100 + op - 1),
            client=changed.get("client", 1),
            request=request,
            op=op,
            timestamp=changed.get("stamp", op),
            operation=Operation.CREATE_STREAM,
            group=GROUP,
        )
        offset = changed.get("offset", op - 1)
        state_hash = changed.get("state_hash", 1_000 + op)
        reply = RESULT_OK + offset.to_bytes(8, "little")
        self.checkers.applied(node, header, BODY, reply, state_hash)
        return self

    def answer(self, request: int, op: int, offset: int) -> "Story":
        reply = RESULT_OK + offset.to_bytes(8, "little")
        self.checkers.answered(GROUP, 1, request, op, reply)
        return self


def broken(code: str) -> pytest.RaisesExc[SimViolationError]:
    return pytest.raises(SimViolationError, match=f"^{code}: ")


def test_a_good_history_passes() -> None:
    story = Story().invoke(1, 2)
    for node in (0, 1, 2):
        story.apply(node, 1).apply(node, 2)
    story.answer(1, 1, 0).answer(2, 2, 1)
    assert story.checkers.applied_count == 2
    assert story.checkers.applied_up_to(GROUP) == 2


def test_r1_two_identities_of_one_op() -> None:
    story = Story().invoke(1, 2).apply(0, 1)
    with broken("R1"):
        story.apply(1, 1, checksum=7)


def test_r1_a_parent_that_is_another() -> None:
    story = Story().invoke(1, 2).apply(0, 1)
    with broken("R1"):
        story.apply(0, 2, parent=7)


def test_r1_an_op_that_others_went_past() -> None:
    story = Story().invoke(1, 2, 3).apply(0, 1)
    story.apply(0, 3, offset=1)
    with broken("R1"):
        story.apply(1, 1).apply(1, 2, offset=2)


def test_r1_out_of_order_and_twice_on_one_node() -> None:
    story = Story().invoke(1, 2).apply(0, 1).apply(0, 2)
    with broken("R1"):
        story.apply(1, 2)
    with broken("R1"):
        story.apply(0, 2)


def test_r2_another_state_at_the_same_op() -> None:
    story = Story().invoke(1).apply(0, 1)
    with broken("R2"):
        story.apply(1, 1, state_hash=5)


def test_r2_an_installed_state_that_is_of_another_op() -> None:
    story = Story().invoke(1).apply(0, 1)
    story.checkers.installed(1, GROUP)
    with broken("R2"):
        story.checkers.observe(1, [(GROUP, Face(commit=1))], {GROUP: AppendMachine()})
    story.checkers.installed(2, GROUP)
    story.checkers.observe(2, [(GROUP, Face(commit=0))], {GROUP: AppendMachine()})
    story.apply(2, 1)


def test_h2_nobody_asked() -> None:
    with broken("H2"):
        Story().apply(0, 1)


def test_h4_one_request_at_two_ops() -> None:
    story = Story().invoke(1).apply(0, 1)
    with broken("H4"):
        story.apply(0, 2, request=1)


def test_h5_a_gap_of_offsets() -> None:
    story = Story().invoke(1, 2).apply(0, 1)
    with broken("H5"):
        story.apply(0, 2, offset=2)


def test_r6_answers_that_do_not_match() -> None:
    story = Story().invoke(1, 2).apply(0, 1).apply(0, 2)
    with broken("R6"):
        story.answer(1, 3, 0)
    with broken("R6"):
        story.answer(1, 2, 1)
    with broken("R6"):
        story.answer(1, 1, 1)


def test_h6_an_earlier_answer_has_the_lower_offset() -> None:
    story = Story().invoke(1, 2).apply(0, 1).apply(0, 2).answer(2, 2, 1)
    story.invoke(1)
    with broken("H6"):
        story.answer(1, 1, 0)


@pytest.mark.parametrize("stamp", [1, 0])
def test_ck1_a_stamp_that_does_not_rise(stamp: int) -> None:
    story = Story().invoke(1, 2).apply(0, 1)
    with broken("CK1"):
        story.apply(0, 2, stamp=stamp)


def test_r6_a_session_is_unknown_only_after_a_logout() -> None:
    checkers = Checkers()
    checkers.evicted(7, EvictionReason.SESSION_TOO_LOW)
    with broken("R6"):
        checkers.evicted(7, EvictionReason.NO_SESSION)
    checkers.leaving(7)
    checkers.evicted(7, EvictionReason.NO_SESSION)


def asked(checksum: int) -> RequestHeader:
    return RequestHeader(
        size=256,
        client=7,
        request=3,
        session=1,
        operation=Operation.CREATE_STREAM,
        request_checksum=checksum,
        group=GROUP,
    )


def test_r6_a_reply_of_another_request_under_its_number() -> None:
    checkers = Checkers()
    first, other = asked(50), asked(51)
    frames = [REQUEST.encode(first), REQUEST.encode(other)]
    granted = (7, encode_reply(first, RESULT_OK))
    refused = (7, encode_reply(other, b"", status=Code.INVALID_FORMAT))
    checkers.took(frames[1:], [granted])  # Nobody has said yet that the number was used before.
    checkers.reused(7, 3, 51)
    checkers.took(frames[1:], [refused])
    checkers.took(frames, [granted, refused])
    with broken("R6"):
        checkers.took(frames[1:], [granted])
    with broken("R6"):
        checkers.took(frames, [granted, granted])
