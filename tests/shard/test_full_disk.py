"""A full disk: definite answers at once (O2.3), and service goes on when there is space again."""

from collections.abc import Callable

import pytest

from headrace.base.limits import KIB
from headrace.wire.commands import messages, session, streams, topics
from headrace.wire.errors import Code, RefusedError
from headrace.wire.identifiers import Consumer, Next
from headrace.wire.numbers import ConsumerKind
from headrace.wire.replies import read_answer
from tests.shard.whole import ROOT, VERSION, Client, Whole

METADATA, DATA = 0, 1
NO_SPACE = Code.CANNOT_APPEND_MESSAGE
# Of the deadline of 1000 ticks: a retry that finds no space answers in the next tick.
TICKS_MAX = 3

Ask = Callable[[Client], bytes | bytearray]


def make_node() -> tuple[Whole, Client]:
    node = Whole(journal_bytes=512 * KIB)
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    client.send("s", "t", [b"first"])
    return node, client


def is_without_space(node: Whole) -> bool:
    return node.shard.is_without_space


def answer_of(client: Client, frame: bytes | bytearray) -> Code | None:
    """Ask; give the code of the refusal, if it is one. The answer must come in a few ticks."""
    client.post(frame)
    for _ in range(TICKS_MAX):
        if client.has_answer():
            break
        client.node.tick()
    try:
        read_answer(client.take())
    except RefusedError as refusal:
        return refusal.code
    return None


def ask_until_refused(client: Client, ask: Ask, count_max: int) -> Code:
    for _ in range(count_max):
        code = answer_of(client, ask(client))
        if code is not None:
            return code
    raise AssertionError("it is never refused")


def send(client: Client) -> bytearray:
    return client.send_frame_of("s", "t", [bytes(30_000)])


def store_offset(client: Client) -> bytes:
    request = messages.StoreOffset(
        consumer=Consumer(ConsumerKind.CONSUMER, 1), stream="s", topic="t", partition_id=0, offset=0
    )
    return client.make_frame(messages.STORE_OFFSET, request)


def create_stream(client: Client) -> bytes:
    return client.make_frame(streams.CREATE_STREAM, streams.CreateStream(f"n{client.number}"))


def login(client: Client) -> bytes:
    newcomer = Client(client.node, 5000 + client.next_number())
    client.connection = newcomer.connection
    request = session.Register(VERSION, password=session.PasswordLogin(*ROOT))
    return newcomer.make_frame(session.LOGIN_PASSWORD, request)


def fill_data(node: Whole) -> None:
    node.segments.is_full = node.disks[DATA].is_full = True


def fill_segments(node: Whole) -> None:
    node.segments.is_full = True


def fill_store(node: Whole) -> None:
    node.disks[DATA].is_full = True


def fill_metadata(node: Whole) -> None:
    node.disks[METADATA].is_full = True


@pytest.mark.parametrize(
    ("fill", "ask"),
    [
        (fill_data, send),
        (fill_segments, send),
        (fill_store, send),
        (fill_data, store_offset),
        (fill_metadata, create_stream),
        (fill_metadata, login),
    ],
)
def test_without_space_a_request_is_refused_at_once(
    fill: Callable[[Whole], None], ask: Ask
) -> None:
    node, client = make_node()
    fill(node)
    assert ask_until_refused(client, ask, 5_000) == NO_SPACE
    node.tick(250)  # It is tried again each second, in vain.
    assert is_without_space(node)
    for _ in range(3):
        node.tick(33)
        assert answer_of(client, ask(client)) == NO_SPACE
    assert node.is_reading
    node.segments.is_full = node.disks[METADATA].is_full = node.disks[DATA].is_full = False
    node.tick(250)
    assert not is_without_space(node)
    assert answer_of(client, ask(client)) is None


def test_what_waits_for_room_is_refused_when_space_is_found_missing() -> None:
    """A journal that is full waits for a checkpoint; once that lacks space, nobody waits on."""
    node, client = make_node()
    node.is_reading_segments = False  # Nobody knows yet that there is no space.
    fill_data(node)
    for _ in range(3):
        client.post(*[send(client) for _ in range(10)])
    node.tick(10)
    answered = len(node.inbox[client.connection])
    assert 0 < answered < 30
    for _ in range(answered):
        read_answer(client.take())
    assert not node.shard.is_idle
    node.is_reading_segments = True
    node.tick(TICKS_MAX)
    assert node.shard.is_without_space
    for _ in range(30 - answered):
        with pytest.raises(RefusedError) as refused:
            read_answer(client.take())
        assert refused.value.code == NO_SPACE
    assert node.shard.is_idle


def test_a_poll_behind_an_offset_that_finds_no_room_is_refused_soon() -> None:
    """A `next` poll waits until the offset of the last one is stored; here it cannot be."""
    node, client = make_node()
    fill_data(node)
    ask_until_refused(client, send, 100)
    ask_until_refused(client, store_offset, 1_000)
    request = messages.PollMessages(
        consumer=Consumer(ConsumerKind.CONSUMER, 1),
        stream="s",
        topic="t",
        partition_id=0,
        strategy=Next(),
        count=1,
        auto_commit=True,
    )
    assert client.ask(messages.POLL_MESSAGES, request).messages_count == 1
    client.post(client.make_frame(messages.POLL_MESSAGES, request))
    assert not node.shard.is_idle
    node.tick(101)
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code == NO_SPACE
    node.segments.is_full = node.disks[DATA].is_full = False
    node.tick(300)
    assert client.ask(messages.POLL_MESSAGES, request).messages_count == 1
