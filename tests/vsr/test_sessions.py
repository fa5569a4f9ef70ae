"""The client table: who may ask, and what is answered to a request that comes again."""

import msgspec
import pytest

from headrace.base.limits import HEADER_BYTES
from headrace.ports.machine import Verdict
from headrace.vsr.sessions import ClientTable
from headrace.wire.errors import CorruptError
from headrace.wire.replica.artifacts import ClientEntry, encode_client_table
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import REPLY, ReplyHeader
from headrace.wire.requests import RequestHeader


def register(table: ClientTable, client: int, op: int, user: int = 0) -> bool:
    return table.register(PrepareHeader(client=client, op=op, user_id=user, operation=1))


def apply(table: ClientTable, client: int, request: int, op: int, checksum: int = 0) -> bytes:
    reply = REPLY.encode(
        ReplyHeader(
            client=client, request=request, op=op, size=HEADER_BYTES, request_checksum=checksum
        )
    )
    table.record(
        PrepareHeader(client=client, request=request, op=op, request_checksum=checksum), b"", reply
    )
    return reply


def judge(
    table: ClientTable, client: int, session: int, request: int, checksum: int = 0
) -> tuple[Verdict, bytes]:
    return table.judge(
        RequestHeader(client=client, session=session, request=request, request_checksum=checksum),
        b"",
    )


def test_a_request_needs_the_session_of_the_latest_login() -> None:
    """VS-26."""
    table = ClientTable()
    assert judge(table, 7, 1, 1)[0] == Verdict.NO_SESSION
    register(table, 7, op=5)
    assert judge(table, 7, 4, 1)[0] == Verdict.FENCED
    assert judge(table, 7, 6, 1)[0] == Verdict.UNMINTED
    assert judge(table, 7, 5, 1)[0] == Verdict.NEW


def test_numbers_may_have_gaps_and_old_ones_are_answered_again() -> None:
    table = ClientTable()
    register(table, 7, op=1)
    replies = {request: apply(table, 7, request, op) for op, request in enumerate([1, 4, 9], 2)}
    assert judge(table, 7, 1, 10)[0] == Verdict.NEW
    for request, reply in replies.items():
        assert judge(table, 7, 1, request) == (Verdict.REPLAY, reply)
    assert judge(table, 7, 1, 5)[0] == Verdict.ALREADY_APPLIED


def test_a_reply_that_is_gone_is_never_made_up() -> None:
    table = ClientTable()
    register(table, 7, op=1)
    for request in range(1, 8):
        apply(table, 7, request, op=request + 1)
    assert judge(table, 7, 1, 2)[0] == Verdict.ALREADY_APPLIED
    assert judge(table, 7, 1, 3)[0] == Verdict.REPLAY


def test_a_number_stands_for_one_request() -> None:
    table = ClientTable()
    register(table, 7, op=1)
    apply(table, 7, 1, op=2, checksum=50)
    assert judge(table, 7, 1, 1, checksum=51)[0] == Verdict.REUSED
    assert judge(table, 7, 1, 1, checksum=0)[0] == Verdict.REPLAY
    apply(table, 7, 2, op=3, checksum=60)
    assert judge(table, 7, 1, 1, checksum=51)[0] == Verdict.REUSED
    assert judge(table, 7, 1, 1, checksum=50)[0] == Verdict.REPLAY
    for request in range(3, 8):
        apply(table, 7, request, op=request + 1)
    assert judge(table, 7, 1, 1, checksum=51)[0] == Verdict.ALREADY_APPLIED


def test_a_new_login_fences_the_old_one_and_keeps_the_numbers() -> None:
    """O4.1: a client that comes back finds its replies."""
    table = ClientTable()
    register(table, 7, op=1)
    reply = apply(table, 7, 3, op=2)
    register(table, 7, op=5)
    assert judge(table, 7, 1, 4)[0] == Verdict.FENCED
    assert judge(table, 7, 5, 3) == (Verdict.REPLAY, reply)


def test_a_client_id_belongs_to_one_user() -> None:
    table = ClientTable()
    register(table, 7, op=1, user=3)
    assert table.is_of_another_user(7, 4)
    assert not table.is_of_another_user(7, 3)
    assert not table.is_of_another_user(8, 4)


def test_a_full_table_drops_the_disconnected_first_and_then_refuses() -> None:
    """O4.1."""
    table = ClientTable(clients_max=3)
    for client in (1, 2, 3):
        assert register(table, client, op=client)
    apply(table, 1, 1, op=9)
    assert not register(table, 4, op=10)
    table.disconnect(1)
    table.disconnect(3)
    assert register(table, 4, op=11)
    assert judge(table, 3, 3, 1)[0] == Verdict.NO_SESSION
    assert judge(table, 1, 1, 2)[0] == Verdict.NEW


def test_who_asked_last_is_dropped_last_on_every_replica() -> None:
    table = ClientTable(clients_max=3)
    for op, client in enumerate([9, 7, 8], 1):
        register(table, client, op)
    apply(table, 9, request=1, op=4)
    register(table, 7, op=5)
    apply(table, 8, request=1, op=6)
    for client in (7, 8, 9):
        table.disconnect(client)
    copy = ClientTable(clients_max=3)
    copy.install(table.encode(), commit=6)
    for each in (table, copy):
        for op, (client, dropped) in enumerate([(1, 9), (2, 7), (3, 8)], 7):
            assert each.user_of(dropped) is not None
            assert register(each, client, op)
            assert each.user_of(dropped) is None
        assert not register(each, 4, op=10)


def test_a_logout_forgets() -> None:
    table = ClientTable()
    register(table, 7, op=1)
    table.logout(7)
    table.logout(7)
    assert judge(table, 7, 1, 1)[0] == Verdict.NO_SESSION


def test_what_is_written_is_read() -> None:
    """VS-29: equal tables give equal bytes."""
    table = ClientTable()
    for client in (9, 2):
        register(table, client, op=client)
        apply(table, client, 1, op=20 + client)
    table.disconnect(2)
    copy = ClientTable()
    copy.install(table.encode(), commit=29)
    assert copy.encode() == table.encode()
    assert judge(copy, 9, 9, 1) == judge(table, 9, 9, 1)


def reply_to(client: int, request: int, op: int) -> bytes:
    return REPLY.encode(ReplyHeader(client=client, request=request, op=op, size=HEADER_BYTES))


LAWFUL = ClientEntry(
    client=7,
    epoch=1,
    user_id=3,
    watermark=5,
    watermark_checksum=0,
    replies=(reply_to(7, 2, 4), reply_to(7, 5, 6)),
)


@pytest.mark.parametrize(
    "change",
    [
        {"client": 8},
        {"epoch": 0},
        {"epoch": 10},
        {"watermark": 4},
        {"replies": (reply_to(7, 5, 6), reply_to(7, 2, 4))},
        {"replies": (reply_to(7, 2, 6), reply_to(7, 5, 6))},
        {"replies": (reply_to(7, 2, 4), reply_to(7, 5, 10))},
        {"replies": (reply_to(7, 2, 4), reply_to(7, 5, 6)[:-1])},
        {"replies": ()},
    ],
    ids=str,
)
def test_a_table_that_no_log_leads_to_is_refused(change: dict[str, object]) -> None:
    """NW13: a peer that lies about its table changes nothing."""
    table = ClientTable()
    table.install(encode_client_table((LAWFUL,)), commit=9)
    table.check(commit=9)
    before = table.encode()
    wrong = msgspec.structs.replace(LAWFUL, **change)
    with pytest.raises(CorruptError):
        table.install(encode_client_table((wrong,)), commit=9)
    assert table.encode() == before


def test_a_table_with_too_many_clients_or_one_op_twice_is_refused() -> None:
    other = ClientEntry(client=8, epoch=6, user_id=3, watermark=0, watermark_checksum=0)
    for entries in ((LAWFUL, LAWFUL), (LAWFUL, other)):
        with pytest.raises(CorruptError, match="twice"):
            ClientTable().install(encode_client_table(entries), commit=9)
    with pytest.raises(CorruptError, match="2 clients, limit 1"):
        ClientTable(clients_max=1).install(encode_client_table((LAWFUL, other)), commit=9)
