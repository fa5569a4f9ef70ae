"""The session without sockets: every kind of answer, retries, reconnects."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.calls import streams, system
from headrace.client.calls.messages import Sent, send_batch
from headrace.client.errors import (
    AlreadyApplied,
    AlreadyExists,
    ClientClosed,
    NotFound,
    ProtocolBroken,
    RefusedByServer,
    Unauthenticated,
    Unauthorized,
    Unavailable,
)
from headrace.client.session.call import Ahead, Call, make_call
from headrace.client.session.session import BACKOFF_SECONDS_MAX, Session, backoff
from headrace.client.session.steps import Transmit
from headrace.wire.commands.messages import SEND_MESSAGES, Confirmation
from headrace.wire.commands.system import PING
from headrace.wire.errors import Code
from headrace.wire.evictions import EVICTION, EvictionReason, encode_eviction
from headrace.wire.numbers import Operation
from headrace.wire.replies import encode_reply
from tests.client.scripted import (
    CLIENT,
    Answer,
    ScriptedServer,
    close,
    eviction,
    raw,
    rejection,
    reply,
    silence,
    status,
)

CONFIRMED = SEND_MESSAGES.encode_reply((Confirmation(1, 2, 3, 4000),))
SEND = send_batch("shop/orders", 3, b"the batch", 7)
DELETE = streams.delete_stream("shop")


def scripted(*script: Answer, **settings: float) -> tuple[ScriptedServer, Session]:
    server = ScriptedServer(list(script))
    return server, server.session(**settings)


def test_the_first_call_connects_and_logs_in() -> None:
    server, session = scripted(reply())
    server.run(session.ask(system.ping()))
    assert server.opens == 1
    (register,) = server.registers
    assert (register.header.client, register.header.request, register.header.session) == (
        CLIENT,
        0,
        0,
    )
    assert session.is_connected
    assert session.logins_count == 1


def test_reads_repeat_the_counter_and_writes_raise_it() -> None:
    server, session = scripted(*[reply(framed=True)] * 2, reply(), reply(CONFIRMED))
    for call in (DELETE, DELETE, system.ping(), SEND):
        server.run(session.ask(call))
    assert server.numbers == [1, 2, 2, 3]
    assert [each.header.session for each in server.asked] == [11] * 4
    assert server.asked[2].header.code == 1


def test_a_confirmed_send() -> None:
    server, session = scripted(reply(CONFIRMED))
    assert server.run(session.ask(SEND)) == Sent(partition=3, offset=4000, count=7)


@pytest.mark.parametrize("answer", [status, rejection])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.STREAM_ID_NOT_FOUND, NotFound),
        (Code.STREAM_NAME_ALREADY_EXISTS, AlreadyExists),
        (Code.UNAUTHORIZED, Unauthorized),
        (Code.REQUEST_ALREADY_APPLIED, AlreadyApplied),
        (Code.TOO_MANY_PARTITIONS, RefusedByServer),
    ],
)
def test_a_refusal_is_raised_at_once_by_either_channel(
    answer: Callable[[Code], Answer], code: Code, kind: type[RefusedByServer]
) -> None:
    server, session = scripted(answer(code))
    with pytest.raises(kind) as raised:
        server.run(session.ask(DELETE))
    assert raised.value.code == code
    assert "delete stream 'shop'" in str(raised.value)
    assert session.is_connected
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "code",
    [Code.TRANSIENT_NOT_COMMITTED, Code.TRANSIENT_NOT_ACCEPTED, Code.CANNOT_APPEND_MESSAGE],
)
def test_a_transient_refusal_repeats_the_number_on_the_same_connection(code: Code) -> None:
    server, session = scripted(status(code), status(code), reply(CONFIRMED))
    assert server.run(session.ask(SEND)).offset == 4000
    assert server.numbers == [1, 1, 1]
    assert server.opens == 1
    assert server.pauses == [0.05, 0.05]
    assert {each.body for each in server.asked} == {SEND.body + SEND.batch}


def test_transient_in_a_result_section_counts_too() -> None:
    server, session = scripted(rejection(Code.TRANSIENT_NOT_COMMITTED), reply(framed=True))
    server.run(session.ask(DELETE))
    assert server.numbers == [1, 1]


@pytest.mark.parametrize("failure", [close(), silence()], ids=["closed", "no answer"])
def test_a_lost_answer_is_asked_for_again_as_the_same_client(failure: Answer) -> None:
    """O4: the same client, the same number, the same bytes, under a new session."""
    server, session = scripted(reply(framed=True), failure, reply(CONFIRMED))
    server.run(session.ask(DELETE))
    assert server.run(session.ask(SEND)).offset == 4000
    assert server.numbers == [1, 2, 2]
    assert [each.header.session for each in server.asked] == [11, 11, 12]
    assert {each.header.client for each in server.registers + server.asked} == {CLIENT}
    assert server.asked[1].body == server.asked[2].body
    assert session.logins_count == 2


def test_numbers_rise_over_reconnects() -> None:
    server, session = scripted(reply(CONFIRMED), close(), reply(CONFIRMED), reply(CONFIRMED))
    for _ in range(3):
        server.run(session.ask(SEND))
    assert server.numbers == [1, 2, 2, 3]


@pytest.mark.parametrize(
    "reason",
    [
        EvictionReason.NO_SESSION,
        EvictionReason.SESSION_TOO_LOW,
        EvictionReason.SESSION_RELEASE_MISMATCH,
        EvictionReason.STALE_CLIENT,
    ],
)
def test_an_eviction_that_asks_for_a_login_gets_one(reason: EvictionReason) -> None:
    server, session = scripted(eviction(reason), reply(CONFIRMED))
    assert server.run(session.ask(SEND)).offset == 4000
    assert server.opens == 2
    assert server.numbers == [1, 1]


def test_an_unknown_eviction_asks_for_a_login() -> None:
    server, session = scripted()
    frame = bytearray(encode_eviction(EvictionReason.NO_SESSION, CLIENT))
    frame[EVICTION.at("reason")] = 99
    server.script = [raw(bytes(frame)), reply(CONFIRMED)]
    server.run(session.ask(SEND))
    assert server.opens == 2


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (EvictionReason.INVALID_REQUEST_OPERATION, Code.INVALID_COMMAND),
        (EvictionReason.INVALID_REQUEST_BODY, Code.INVALID_COMMAND),
        (EvictionReason.SESSION_ERROR, Code.UNAUTHENTICATED),
        (EvictionReason.USER_INACTIVE, Code.UNAUTHENTICATED),
    ],
)
def test_an_eviction_that_no_login_cures_is_raised(reason: EvictionReason, code: Code) -> None:
    server, session = scripted(eviction(reason))
    with pytest.raises(RefusedByServer) as raised:
        server.run(session.ask(SEND))
    assert raised.value.code == code
    assert reason.name in str(raised.value)
    assert not session.is_connected


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (EvictionReason.INVALID_CREDENTIALS, Unauthenticated),
        (EvictionReason.INVALID_TOKEN, Unauthenticated),
        (EvictionReason.MALFORMED_LOGIN, RefusedByServer),
        (EvictionReason.INCOMPATIBLE_PROTOCOL, RefusedByServer),
    ],
)
def test_a_refused_login_is_not_tried_again(
    reason: EvictionReason, kind: type[RefusedByServer]
) -> None:
    server, session = scripted()
    server.logins = [eviction(reason)]
    with pytest.raises(kind):
        server.run(session.open())
    assert len(server.registers) == 1


def test_an_incompatible_server_says_what_it_speaks() -> None:
    server, session = scripted()
    server.logins = [eviction(EvictionReason.INCOMPATIBLE_PROTOCOL)]
    with pytest.raises(RefusedByServer, match=r"the server speaks 0\.11\.0 to 0\.11\.0"):
        server.run(session.open())


def test_a_login_that_must_wait_is_repeated_on_its_connection() -> None:
    server, session = scripted()
    server.logins = [
        rejection(Code.TRANSIENT_NOT_ACCEPTED),
        rejection(Code.TRANSIENT_NOT_COMMITTED),
    ]
    server.run(session.open())
    assert len(server.registers) == 3
    assert server.opens == 1
    assert session.is_connected


def test_a_read_before_login_by_the_servers_word_logs_in_again() -> None:
    server, session = scripted(status(Code.UNAUTHENTICATED), reply())
    server.run(session.ask(system.ping()))
    assert server.opens == 2


def test_attempts_to_connect_wait_longer_and_longer() -> None:
    server, session = scripted(reply())
    server.refused_opens = 9
    server.run(session.ask(system.ping()))
    assert server.opens == 10
    assert server.pauses == [0.0, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.0]


def test_backoff_differs_by_chance_up_to_a_half() -> None:
    low, high = backoff(lambda: 0.999), backoff(lambda: 0.0)
    for _ in range(20):
        one, other = next(low), next(high)
        assert other / 2 <= one <= other <= BACKOFF_SECONDS_MAX


def test_time_is_up_when_nobody_listens() -> None:
    server, session = scripted(timeout_seconds=5.0)
    server.refused_opens = 1000
    with pytest.raises(
        Unavailable, match=r"127\.0\.0\.1:8090 cannot be reached within 5 s: nobody listens"
    ) as raised:
        server.run(session.ask(SEND))
    assert not raised.value.is_outcome_unknown
    assert server.now <= 105.0


@pytest.mark.parametrize(
    ("call", "answer", "is_unknown"),
    [
        (SEND, silence(), True),
        (SEND, status(Code.TRANSIENT_NOT_COMMITTED), True),
        (SEND, status(Code.TRANSIENT_NOT_ACCEPTED), False),
        (make_call(PING, None), silence(), False),
    ],
    ids=["silence", "57", "58", "a read"],
)
def test_time_is_up_and_the_error_says_whether_the_outcome_is_known(
    call: Call[object], answer: Answer, is_unknown: bool
) -> None:
    server, session = scripted(*[answer] * 1000, timeout_seconds=5.0, answer_seconds=1.0)
    with pytest.raises(Unavailable) as raised:
        server.run(session.ask(call))
    assert raised.value.is_outcome_unknown is is_unknown
    assert len(set(server.numbers)) == 1
    assert server.now <= 105.0


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20,
        bytes(256),
        bytes(48) + (256).to_bytes(4, "little") + bytes(8) + b"\x06" + bytes(195),
    ],
    ids=["http", "size 0", "a prepare"],
)
def test_what_is_no_answer_ends_the_call_and_the_connection(data: bytes) -> None:
    server, session = scripted(raw(data), reply(CONFIRMED))
    with pytest.raises(ProtocolBroken):
        server.run(session.ask(SEND))
    assert not session.is_connected
    server.run(session.ask(SEND))
    assert server.opens == 2


def test_an_answer_to_another_request_is_no_answer() -> None:
    server, session = scripted(reply(framed=True))
    server.run(session.ask(DELETE))
    old = server.asked[-1].header
    server.script = [raw(encode_reply(old, CONFIRMED, operation=Operation.SEND_MESSAGES))]
    with pytest.raises(ProtocolBroken, match="an answer to request 1, 2 was asked"):
        server.run(session.ask(SEND))


def test_two_answers_to_one_request_are_a_breach() -> None:
    server, session = scripted(lambda asked: 2 * encode_reply(asked.header, CONFIRMED))
    with pytest.raises(ProtocolBroken, match="more than one answer"):
        server.run(session.ask(SEND))


def test_an_eviction_from_before_the_request_is_taken_for_its_answer() -> None:
    server, session = scripted(
        lambda asked: (
            encode_eviction(EvictionReason.STALE_CLIENT, CLIENT)
            + encode_eviction(EvictionReason.NO_SESSION, CLIENT)
        ),
        reply(CONFIRMED),
    )
    assert server.run(session.ask(SEND)).offset == 4000
    assert server.numbers == [1, 1]
    assert session.logins_count == 2


def test_a_payload_that_cannot_be_read_is_a_breach() -> None:
    server, session = scripted(reply(b"\x01\x00\x00\x00"))
    with pytest.raises(ProtocolBroken, match="cannot be read"):
        server.run(session.ask(SEND))


def test_a_session_numbered_zero_is_a_breach() -> None:
    server, session = scripted()
    zero = (0).to_bytes(4, "little") + bytes(8) + (11264).to_bytes(4, "little") + b"\x01x"
    server.logins = [reply(zero, framed=True)]
    with pytest.raises(ProtocolBroken, match="numbered 0"):
        server.run(session.open())


@given(piece=st.integers(1, 400))
def test_answers_may_come_in_any_pieces(piece: int) -> None:
    server, session = scripted(reply(CONFIRMED))
    server.piece_bytes = piece
    assert server.run(session.ask(SEND)).offset == 4000


def test_an_abandoned_call_leaves_no_connection_that_owes_an_answer() -> None:
    server, session = scripted(reply(CONFIRMED))
    server.run(session.open())
    steps = session.ask(SEND)
    assert isinstance(next(steps), Transmit)
    steps.close()  # as a cancelled task does
    assert not session.is_connected
    server.run(session.ask(SEND))
    assert server.opens == 2
    assert server.numbers == [2]


def test_a_beat_comes_after_silence_only() -> None:
    server, session = scripted(reply(), reply())
    server.run(session.beat())
    assert not server.opens  # without a connection there is nothing to keep alive
    server.run(session.ask(system.ping()))
    server.run(session.beat())
    assert len(server.asked) == 1
    server.now += 6
    server.run(session.beat())
    assert len(server.asked) == 2


def test_a_beat_notices_a_lost_connection_and_leaves_it() -> None:
    server, session = scripted(reply(), close())
    server.run(session.ask(system.ping()))
    server.now += 6
    server.run(session.beat())
    assert not session.is_connected
    assert server.opens == 1


def test_closing_logs_out_once_and_refuses_later_calls() -> None:
    server, session = scripted(reply(CONFIRMED), reply())
    server.run(session.ask(SEND))
    server.run(session.close())
    server.run(session.close())
    assert [each.header.operation for each in server.asked] == [160, Operation.LOGOUT]
    assert server.numbers == [1, 2]
    with pytest.raises(ClientClosed):
        server.run(session.ask(SEND))


@pytest.mark.parametrize("answer", [close(), silence(), raw(b"?" * 300)])
def test_closing_does_not_depend_on_the_servers_answer(answer: Answer) -> None:
    server, session = scripted(reply(CONFIRMED), answer)
    server.run(session.ask(SEND))
    server.run(session.close())
    assert session.is_closed


def test_closing_without_a_connection_needs_none() -> None:
    server, session = scripted()
    server.run(session.close())
    assert not server.opens


def test_a_first_connection_that_is_refused_fails_at_once() -> None:
    server, session = scripted(reply(), wait_seconds=0.0)
    server.refused_opens = 1
    said = r"127\.0\.0\.1:8090 cannot be reached: nobody listens; is a node running there"
    with pytest.raises(Unavailable, match=said):
        server.run(session.open())
    assert (server.opens, server.pauses) == (1, [])


@pytest.mark.parametrize("wait_seconds", [3.0, 60.0], ids=["below", "above"])
def test_a_first_connection_is_tried_as_long_as_its_user_waits(wait_seconds: float) -> None:
    """Whether that is less or more than a call may take."""
    server, session = scripted(reply(), timeout_seconds=5.0, wait_seconds=wait_seconds)
    server.refused_opens = 1000
    with pytest.raises(Unavailable, match=f"cannot be reached within {wait_seconds:g} s: nobody"):
        server.run(session.open())
    assert 100.0 + wait_seconds - 2.0 <= server.now <= 100.0 + wait_seconds
    server.refused_opens = 3
    server.run(session.open())
    assert session.is_connected


def test_who_was_logged_in_once_waits_for_his_server() -> None:
    server, session = scripted(close(), reply(), wait_seconds=0.0)
    server.run(session.open())
    server.refused_opens = 3
    server.run(session.ask(system.ping()))
    assert server.opens == 5


def ahead_of(session: Session, server: ScriptedServer, call: Call[None]) -> Ahead:
    ahead = Ahead(call)
    server.run(session.begin(ahead))
    return ahead


def test_an_answer_that_was_asked_for_ahead_is_fetched() -> None:
    server, session = scripted(reply(), reply(), reply())
    server.run(session.ask(system.ping()))
    ping = system.ping()
    ahead = ahead_of(session, server, ping)
    assert len(server.asked) == 2
    ahead_of(session, server, system.ping())  # One at a time.
    assert len(server.asked) == 2
    server.run(session.ask(ping))
    assert len(server.asked) == 2
    assert not ahead.is_discarded
    server.run(session.ask(ping))
    assert len(server.asked) == 3


def test_another_call_discards_what_was_asked_for_ahead() -> None:
    for answer in (reply(), status(Code.UNAUTHORIZED), status(Code.TRANSIENT_NOT_ACCEPTED)):
        server, session = scripted(reply(), answer, reply(CONFIRMED), reply())
        server.run(session.ask(system.ping()))
        ping = system.ping()
        ahead = ahead_of(session, server, ping)
        assert server.run(session.ask(SEND)) == Sent(3, 4000, 7)
        assert ahead.is_discarded
        server.run(session.ask(ping))
        assert (len(server.asked), server.opens) == (4, 1)


@pytest.mark.parametrize("answer", [close(), silence(), eviction(EvictionReason.NO_SESSION)])
def test_a_connection_that_is_lost_with_an_answer_outstanding(answer: Answer) -> None:
    for call in (system.ping(), SEND):
        server, session = scripted(reply(), answer, reply(CONFIRMED))
        server.run(session.ask(system.ping()))
        ping = system.ping()
        ahead_of(session, server, ping)
        server.run(session.ask(call if call is SEND else ping))
        assert (len(server.asked), server.opens) == (3, 2)
        assert server.asked[-1].header.session == 12


def test_without_a_connection_nothing_is_asked_for_ahead() -> None:
    server, session = scripted(reply(), reply())
    ahead_of(session, server, system.ping())
    assert server.opens == 0
    server.run(session.ask(system.ping()))
    server.run(session.close())
    ahead_of(session, server, system.ping())
    assert len(server.asked) == 2  # with the logout


def test_steps_that_are_abandoned_while_asking_ahead_leave_it_unbound() -> None:
    server, session = scripted(reply())
    server.run(session.ask(system.ping()))
    steps = session.begin(Ahead(system.ping()))
    next(steps)
    steps.close()
    assert not session.is_connected
