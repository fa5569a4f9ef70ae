"""Guards of a shard that few requests meet: who may read, sends that contradict themselves."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from headrace.base.ids import GroupId
from headrace.base.limits import HEADER_BYTES
from headrace.ports.network import ReadConnections
from headrace.shard.consensus.clock import Clock
from headrace.shard.front.backpressure import Backpressure
from headrace.shard.front.connections import Connections
from headrace.shard.front.credential import Credential, credential_of, holds
from headrace.shard.front.refusals import Refusals
from headrace.shard.turn import Turn
from headrace.wire.commands import clients, groups, messages, streams, tokens, topics, users
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import Transport, UserStatus
from headrace.wire.options import make_options
from tests.shard.test_not_done import told, with_anna
from tests.shard.test_rare_orders import POLL
from tests.shard.trio import STREAM, Trio
from tests.shard.whole import Client, Whole

if TYPE_CHECKING:
    from headrace.shard.metadata import Metadata

READS: list[tuple[Command[Any, Any], object]] = [
    (streams.GET_STREAM, streams.GetStream("s")),
    (streams.GET_STREAMS, None),
    (topics.GET_TOPIC, topics.GetTopic("s", "t")),
    (topics.GET_TOPICS, topics.GetTopics("s")),
    (groups.GET_GROUPS, groups.GetGroups("s", "t")),
    (users.GET_USERS, None),
]


@pytest.mark.parametrize(("command", "request_"), READS, ids=lambda each: type(each).__name__)
def test_who_has_no_permissions_reads_nothing(command: Command[Any, Any], request_: object) -> None:
    node = Whole()
    root, _ = with_anna(node)
    nobody = users.CreateUser(username="nobody", password=b"secret", status=UserStatus.ACTIVE)
    root.ask(users.CREATE_USER, nobody)
    client = node.client(("nobody", b"secret"), client=600)
    with pytest.raises(RefusedError) as raised:
        client.ask(command, request_)
    assert raised.value.code == Code.UNAUTHORIZED
    root.ask(command, request_)


def test_a_batch_of_another_number_of_messages_than_its_routing_says() -> None:
    _, anna = with_anna(Whole())
    frame = anna.send_frame_of("s", "t", [b"one", b"two"])
    routing_bytes = int.from_bytes(frame[HEADER_BYTES : HEADER_BYTES + 4], "little")
    frame[HEADER_BYTES + routing_bytes] += 1
    assert told(anna.send_frame(frame)) == Code.INVALID_COMMAND


def test_the_next_user_of_a_number_has_no_session_of_the_last_one() -> None:
    node = Whole()
    with_anna(node)
    state = node.shard.metadata.state
    anna = state.users.find("anna")
    assert anna is not None
    credential = credential_of(anna)
    assert holds(credential, state, 0)
    before = msgspec.structs.replace(credential, created_op=anna.created_op - 1)
    assert not holds(before, state, 0)


def test_what_is_not_found_may_be_there_by_now_if_others_may_have_decided_more() -> None:
    turn = Turn(Clock(0))
    stale = Refusals(cast("Metadata", SimpleNamespace(is_current=False)), turn.probes)
    current = Refusals(cast("Metadata", SimpleNamespace(is_current=True)), turn.probes)
    assert stale.judge(Code.STREAM_ID_NOT_FOUND) == Code.TRANSIENT_NOT_ACCEPTED
    assert current.judge(Code.STREAM_ID_NOT_FOUND) == Code.STREAM_ID_NOT_FOUND
    assert stale.judge(Code.INVALID_COMMAND) == Code.INVALID_COMMAND


def test_requests_are_read_on_until_something_is_full_and_again_after_a_pause() -> None:
    turn = Turn(Clock(0))
    backpressure = Backpressure(turn)

    def told_at(now: int, *, is_full: bool) -> list[bool]:
        turn.clock.now = now
        turn.out.clear()
        backpressure.regulate(is_full=is_full)
        backpressure.check()
        return [each.is_reading for each in turn.out if isinstance(each, ReadConnections)]

    assert told_at(1, is_full=False) == []
    assert told_at(2, is_full=True) == [False]
    assert told_at(3, is_full=True) == []
    assert told_at(4, is_full=False) == [True]
    assert told_at(5, is_full=True) == [False]
    assert told_at(1004, is_full=True) == []
    assert told_at(1005, is_full=True) == [True]  # Nothing gets better: requests are told so.
    assert told_at(1006, is_full=True) == []
    assert told_at(2005, is_full=True) == [False]


def test_a_poll_that_stores_no_later_offset_orders_nothing() -> None:
    node = Whole()
    _, anna = with_anna(node)
    (replica,) = node.shard.data_plane.groups.values()
    anna.ask(messages.POLL_MESSAGES, POLL)
    node.tick(5)
    ordered = replica.op
    anna.ask(messages.POLL_MESSAGES, POLL)
    node.tick(5)
    assert replica.op == ordered


def test_a_poll_that_names_no_partition_is_of_the_first() -> None:
    _, anna = with_anna(Whole())
    polled = anna.ask(
        messages.POLL_MESSAGES, msgspec.structs.replace(POLL, partition_id=None, auto_commit=False)
    )
    assert polled == anna.ask(
        messages.POLL_MESSAGES, msgspec.structs.replace(POLL, auto_commit=False)
    )


def test_a_partition_that_is_not_here_yet_is_refused() -> None:
    node = Whole()
    with pytest.raises(RefusedError) as raised:
        node.shard.partitions.find_epoch(GroupId(1 << 40), 1)
    assert raised.value.code == Code.TRANSIENT_NOT_ACCEPTED


def test_only_an_earlier_session_of_the_same_client_is_too_low() -> None:
    connections = Connections()
    connection = connections.open(1, Transport.TCP, "10.0.0.1:1", 0)
    connections.bind(connection, client=7, credential=Credential(0, 0, "hash"), session=5)

    def reason(client: int, session: int) -> EvictionReason | None:
        with pytest.raises(EvictedError) as raised:
            connection.check_session(client, session)
        return raised.value.reason

    connection.check_session(7, 5)
    assert reason(7, 4) == EvictionReason.SESSION_TOO_LOW
    assert reason(7, 6) == EvictionReason.NO_SESSION
    assert reason(8, 4) == EvictionReason.NO_SESSION
    assert reason(8, 5) == EvictionReason.NO_SESSION


def test_a_stream_has_no_options() -> None:
    node = Whole()
    root, _ = with_anna(node)
    ordered = node.shard.metadata.replica.op
    request = streams.CreateStream("with", options=make_options({"retention": 1}))
    with pytest.raises(RefusedError) as raised:
        root.ask(streams.CREATE_STREAM, request)
    assert raised.value.code == Code.UNSUPPORTED_OPTION_KEY
    assert node.shard.metadata.replica.op == ordered  # It is refused before it is ordered.


def test_a_new_password_is_bounded_as_a_first_one_is() -> None:
    _, anna = with_anna(Whole())
    with pytest.raises(RefusedError) as raised:
        anna.ask(users.CHANGE_PASSWORD, users.ChangePassword("anna", b"secret", b"x"))
    assert raised.value.code == Code.INVALID_PASSWORD


def test_an_op_is_noted_by_the_node_of_its_client_alone() -> None:
    trio = Trio()
    root = trio.login(0)
    for node in trio.nodes:
        node.audited.clear()
    root.ask(streams.DELETE_STREAM, streams.DeleteStream(STREAM))
    trio.tick(50)
    noted = [[each.event for each in node.audited] for node in trio.nodes]
    assert noted == [["delete_stream"], [], []]


def test_a_client_is_found_by_the_number_that_the_list_shows() -> None:
    root, anna = with_anna(Whole())
    listed = {each.client_id: each for each in root.ask(clients.GET_CLIENTS)}
    assert len(listed) == 2
    for number in listed:
        found = root.ask(clients.GET_CLIENT, clients.GetClient(number))
        assert found.client.client_id == number
    assert root.ask(clients.GET_CLIENT, clients.GetClient(max(listed) + 1)) is None
    assert anna.ask(clients.GET_ME).client.client_id in listed


def test_each_token_of_a_user_opens_a_session() -> None:
    node = Whole()
    _, anna = with_anna(node)
    made = [anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken(name, 0)) for name in ("one", "two")]
    for number, each in enumerate(made):
        client = Client(node, 700 + number)
        client.login_by_token(each.token)
        mine, theirs = (each.ask(clients.GET_ME).client for each in (client, anna))
        assert mine.user_id == theirs.user_id


def test_a_send_has_a_number() -> None:
    _, anna = with_anna(Whole())
    frame = anna.send_frame_of("s", "t", [b"one"], number=0)
    assert told(anna.send_frame(frame)) == Code.INVALID_COMMAND
