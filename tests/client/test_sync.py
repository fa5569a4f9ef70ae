"""The blocking face with a real node."""

import threading
import time
from collections.abc import Callable

import pytest

import headrace
from headrace.base.units import parse_bytes
from headrace.client.calls.messages import poll_raw
from headrace.client.calls.names import ANONYMOUS
from headrace.client.messages import read_messages
from headrace.wire.identifiers import FromOffset
from headrace.wire.permissions import GlobalPermissions, Permissions
from tests.known_secrets import remember
from tests.node import Node, running_node

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(client: headrace.Client) -> str:
    client.create_stream("shop")
    client.create_topic("shop/orders", partitions=4)
    return "shop/orders"


def test_credentials_decide(node: Node, client: headrace.Client) -> None:
    with pytest.raises(headrace.Unauthenticated):
        headrace.connect(str(node.tcp), username="iggy", password="wrong")
    token = client.create_token("laptop", expiry="1 h")
    remember(token)
    with headrace.connect(str(node.tcp), token=token) as other:
        assert other.get_me().client.user_id == 0
        assert other.client_id != client.client_id
    with pytest.raises(headrace.Unauthenticated):
        headrace.connect(str(node.tcp), token="x" * 40)


def test_permissions_decide(node: Node, client: headrace.Client, topic: str) -> None:
    reader = Permissions(everywhere=GlobalPermissions(read_streams=True, read_topics=True))
    client.create_user("ada", "correct horse battery", permissions=reader)
    with headrace.connect(str(node.tcp), username="ada", password="correct horse battery") as other:
        assert other.get_topic(topic).topic.name == "orders"
        with pytest.raises(headrace.Unauthorized):
            other.send(topic, ["no"], partition=0)
        with pytest.raises(headrace.Unauthorized):
            other.create_stream("mine")


def test_who_may_only_send_names_the_partition(
    node: Node, client: headrace.Client, topic: str
) -> None:
    sender = Permissions(everywhere=GlobalPermissions(send_messages=True))
    client.create_user("ada", "correct horse battery", permissions=sender)
    with headrace.connect(str(node.tcp), username="ada", password="correct horse battery") as other:
        with other.producer(topic, partitioning=3) as producer:
            delivery = producer.send("one")
        assert delivery.wait() == (3, 0)


def test_refusals_have_their_classes(client: headrace.Client, topic: str) -> None:
    with pytest.raises(headrace.AlreadyExists, match="create stream 'shop'"):
        client.create_stream("shop")
    with pytest.raises(headrace.NotFound, match="topic id not found"):
        client.get_topic("shop/nothing")
    with pytest.raises(headrace.NotFound, match="stream id not found"):
        client.get_topic("nothing/orders")
    with pytest.raises(headrace.NotFound, match="stream id not found"):
        client.send("nothing/orders", ["x"])
    with (
        client.consumer("nothing/orders", wait=0) as consumer,
        pytest.raises(headrace.NotFound, match="stream id not found"),
    ):
        next(consumer)
    with pytest.raises(headrace.NotFound):
        client.poll(topic, 17)
    with pytest.raises(headrace.NotFound):
        client.send("shop/nothing", ["x"])


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda client: client.create_stream("a\nb"), "1 to 255 bytes of UTF-8 and no control"),
        (lambda client: client.create_stream(""), "create stream '': .*0 bytes, allowed 1 to 255"),
        (lambda client: client.create_topic("shop/a\nb"), "1 to 255 bytes of UTF-8 and no control"),
        (lambda client: client.create_group("shop/orders", "\a"), "1 to 255 bytes of UTF-8"),
        (lambda client: client.create_user("ab", "x" * 20), "3 to 50 bytes of UTF-8 and no"),
        (lambda client: client.create_user("abc", "abc"), "is not the user's name"),
        (lambda client: client.create_token("ab"), "3 to 30 bytes of UTF-8 and no control"),
        (lambda client: client.create_token(""), "token '': .*0 bytes, allowed 1 to 255"),
    ],
)
def test_a_wrong_name_is_answered_with_the_rule_for_it(
    client: headrace.Client, topic: str, ask: Callable[[headrace.Client], object], words: str
) -> None:
    del topic
    with pytest.raises((headrace.RefusedByServer, ValueError), match=words):
        ask(client)


def test_a_producer_deals_evenly_and_confirms_each_message(
    client: headrace.Client, topic: str
) -> None:
    with client.producer(topic, batch=100) as producer:
        deliveries = [producer.send(b"%d" % number) for number in range(2000)]
    places = [delivery.wait() for delivery in deliveries]
    assert len(set(places)) == 2000
    sizes = [partition.messages_count for partition in client.get_topic(topic).partitions]
    assert sum(sizes) == 2000
    assert min(sizes) > 0
    for number in (0, 777, 1999):
        partition, offset = places[number]
        (message,) = client.poll(topic, partition, start=offset, count=1)
        assert message.value == b"%d" % number


def test_flush_waits_and_a_key_keeps_its_partition(client: headrace.Client, topic: str) -> None:
    with client.producer(topic, linger="1 h") as producer:
        deliveries = [producer.send("x", key="ada") for _ in range(3)]
        assert not any(delivery.is_done for delivery in deliveries)
        producer.flush()
        assert all(delivery.is_done for delivery in deliveries)
    places = [delivery.wait() for delivery in deliveries]
    assert [place.offset for place in places] == [0, 1, 2]
    assert len({place.partition for place in places}) == 1


def test_many_threads_share_a_producer(client: headrace.Client, topic: str) -> None:
    places: list[headrace.Place] = []

    def work(producer: headrace.Producer) -> None:
        places.extend([each.wait() for each in [producer.send("x") for _ in range(200)]])

    with client.producer(topic, batch=50) as producer:
        threads = [threading.Thread(target=work, args=(producer,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(places)) == 800


def test_a_full_buffer_holds_the_sender_back(client: headrace.Client, topic: str) -> None:
    with client.producer(topic, buffer="10 KiB", linger="1 h", block=0.05) as producer:
        producer.send(b"x" * 9000)
        with pytest.raises(headrace.BufferFull, match="bytes wait for 'shop/orders'"):
            producer.send(b"x" * 9000)
        producer.flush()
        producer.send(b"x" * 9000)
    assert client.get_topic(topic).topic.messages_count == 2


def test_what_cannot_be_sent_is_raised_at_the_end(client: headrace.Client, topic: str) -> None:
    producer = client.producer(topic, linger=0)
    producer.send("x").wait()
    client.delete_topic(topic)
    delivery = producer.send("y")
    with pytest.raises(headrace.NotFound):
        producer.close()
    with pytest.raises(headrace.NotFound):
        delivery.wait()
    with pytest.raises(headrace.ClientClosed):
        producer.send("z")


def test_the_error_of_the_block_is_the_one_that_shows(client: headrace.Client, topic: str) -> None:
    def fail() -> None:
        with client.producer(topic, linger="1 h") as producer:
            producer.send("x")
            client.delete_topic(topic)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()


def test_a_consumer_that_fails_gets_its_message_again(client: headrace.Client, topic: str) -> None:
    client.send(topic, ["one", "two", "three"], partition=0)

    def read_until_two() -> None:
        with client.consumer(topic, name="me", commit="each", wait=0) as consumer:
            for message in consumer:
                if message.text == "two":
                    raise KeyError("broken")

    with pytest.raises(KeyError):
        read_until_two()
    with client.consumer(topic, name="me", wait=0) as consumer:
        assert [message.text for message in consumer] == ["two", "three"]
    with client.consumer(topic, name="me", wait=0) as consumer:
        assert list(consumer) == []


def test_messages_that_come_later_are_read(client: headrace.Client, node: Node, topic: str) -> None:
    with (
        headrace.connect(str(node.tcp)) as other,
        client.consumer(topic, start="latest", wait="10 s") as consumer,
    ):
        timer = threading.Timer(0.3, lambda: other.send(topic, ["late"]))
        timer.start()
        assert next(consumer).text == "late"
        timer.join()


def test_a_group_shares_its_partitions_and_every_message_comes(
    client: headrace.Client, node: Node, topic: str
) -> None:
    """Takes 8 s of the share of groups: a member looks every 5 s whether it has gained any."""
    with headrace.connect(str(node.tcp)) as other:
        first = client.consumer(topic, group="g", wait="500 ms", commit="each", count=10)
        for partition in range(4):
            client.send(
                topic, [f"{partition}:{number}" for number in range(20)], partition=partition
            )
        read = [next(first).text for _ in range(10)]
        second = other.consumer(topic, group="g", wait="7 s", commit="each", count=10)
        read.append(next(second).text)
        read += [message.text for message in first]
        read += [message.text for message in second]
        members = client.get_group(topic, "g").members
        assert sorted(len(member.partitions) for member in members) == [2, 2]
        first.close()
        second.close()
    wanted = {f"{partition}:{number}" for partition in range(4) for number in range(20)}
    assert set(read) == wanted  # at least once: a hand-over may give a message twice
    assert len(read) <= len(wanted) + 20
    assert client.get_group(topic, "g").members == ()


def test_one_client_is_one_member(client: headrace.Client, topic: str) -> None:
    first = client.consumer(topic, group="g")
    with pytest.raises(ValueError, match="connect a second client"):
        client.consumer(topic, group="g")
    first.close()
    client.consumer(topic, group="g").close()


def test_trimmed_messages_are_told_exactly(client: headrace.Client) -> None:
    client.create_stream("logs")
    client.create_topic("logs/web", options={"segment_size": "1 MiB"})
    for _ in range(5):
        client.send("logs/web", [b"x" * 1000] * 700, partition=0)
    client.store_offset("logs/web", 0, 3499, consumer="fast")
    deadline = time.monotonic() + 20
    while client.poll("logs/web", count=1)[0].offset == 0:
        client.delete_segments("logs/web", 0, 1)
        assert time.monotonic() < deadline
    oldest = client.poll("logs/web", count=1)[0].offset
    with client.consumer("logs/web", partition=0, start=10, wait=0) as consumer:
        with pytest.raises(headrace.DataLost) as raised:
            next(consumer)
        assert (raised.value.first, raised.value.end) == (10, oldest)
        assert next(consumer).offset == oldest


def test_a_large_message_and_a_large_batch(client: headrace.Client, topic: str) -> None:
    size = parse_bytes("20 MB")
    client.send(topic, [b"x" * size], partition=0)
    (message,) = client.poll(topic)
    assert len(message.value) == size


def test_a_client_survives_the_restart_of_its_server() -> None:
    with running_node() as node, headrace.connect(str(node.tcp), heartbeat="100 ms") as client:
        client.create_stream("shop")
        client.create_topic("shop/orders")
        with client.producer("shop/orders", linger=0) as producer:
            producer.send("before").wait()
            node.kill()
            during = producer.send("during")
            node.start()
            assert during.wait().offset == 1
        assert [message.text for message in client.poll("shop/orders")] == ["before", "during"]
        assert client.logins_count > 1


def test_nobody_listens() -> None:
    said = r"127\.0\.0\.1:1 cannot be reached: .*; is a node running there"
    with pytest.raises(headrace.Unavailable, match=said):
        headrace.connect("127.0.0.1:1", timeout="24 h")
    with pytest.raises(headrace.Unavailable, match=r"cannot be reached within 0\.2 s"):
        headrace.connect("127.0.0.1:1", wait="200 ms")


def test_a_node_that_comes_later_is_waited_for() -> None:
    with running_node() as node:
        node.kill()
        begun = threading.Event()

        def connect() -> None:
            begun.set()
            with headrace.connect(str(node.tcp), wait="60 s") as client:
                found.append(client.get_streams())

        found: list[object] = []
        thread = threading.Thread(target=connect)
        thread.start()
        begun.wait()
        node.start()
        thread.join()
    assert found == [()]


def test_a_closed_client_says_so(node: Node) -> None:
    client = headrace.connect(str(node.tcp))
    client.close()
    client.close()
    with pytest.raises(headrace.ClientClosed):
        client.ping()


def test_a_forked_process_does_not_send_under_its_parents_numbers(
    client: headrace.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(headrace.ClientClosed, match="another process"):
        client.ping()
    monkeypatch.undo()
    client.ping()


def test_the_end_of_a_client_ends_what_it_has_opened(node: Node, client: headrace.Client) -> None:
    client.create_stream("shop")
    client.create_topic("shop/orders")

    def work(*, is_failing: bool) -> None:
        with headrace.connect(str(node.tcp)) as other:
            other.producer("shop/orders", linger="1 h").send("sent by the end")
            other.send("shop/orders", ["one", "two"])
            consumer = other.consumer("shop/orders", group="g")
            next(consumer)
            next(consumer)
            if is_failing:
                raise KeyError("mine")

    with pytest.raises(KeyError):
        work(is_failing=True)
    assert client.get_group("shop/orders", "g").members == ()
    stored = client.get_offset("shop/orders", 0, group="g")
    assert stored is not None
    assert stored.stored_offset == 0  # the message that was worked on is not done
    assert client.poll("shop/orders")[2].text == "sent by the end"
    work(is_failing=False)
    stored = client.get_offset("shop/orders", 0, group="g")
    assert stored is not None
    assert stored.stored_offset == 2


def test_the_heartbeat_keeps_an_idle_client_known(node: Node) -> None:
    with headrace.connect(str(node.tcp), heartbeat="20 ms") as client:
        heard = client._session._connection.heard
        deadline = time.monotonic() + 10
        while client._session._connection.heard == heard:
            time.sleep(0.01)
            assert time.monotonic() < deadline


def test_many_at_once_and_large_ones(client: headrace.Client) -> None:
    client.create_stream("shop")
    client.create_topic("shop/orders")
    values = [b"%d" % number * 500 for number in range(5000)]
    with client.producer("shop/orders", partitioning=0, buffer="1 MiB") as producer:
        producer.send_many(values, headers={"n": 1})
        producer.send_many([])
        producer.flush()
        assert producer.confirmed_count == len(values)
    with client.consumer("shop/orders", partition=0, wait=0, count=5000) as consumer:
        found = list(consumer)
    assert [message.value for message in found] == values
    assert found[-1].headers == {"n": 1}


def test_a_failure_is_there_without_waiting(client: headrace.Client) -> None:
    client.create_stream("shop")
    client.create_topic("shop/orders")
    producer = client.producer("shop/orders", partitioning=9, linger=0)
    with pytest.raises(headrace.NotFound):
        producer.send("lost").wait()
    with pytest.raises(headrace.NotFound):
        producer.check()
    producer.check()
    producer.close()


def test_what_an_answer_held_stays_when_the_next_one_comes(client: headrace.Client) -> None:
    """Answers share a buffer: nothing of one may show in what was read from another."""
    client.create_stream("shop")
    client.create_topic("shop/orders")
    client.send("shop/orders", [b"a" * 100_000], partition=0)
    client.send("shop/orders", [b"b" * 100_000], partition=0)
    first = client.poll("shop/orders", start=0, count=1)
    second = client.poll("shop/orders", start=1, count=1)
    raw = client.ask(poll_raw("shop/orders", 0, FromOffset(0), who=ANONYMOUS, count=1))
    snapshot = client.get_snapshot()
    client.get_topics("shop")
    assert (first[0].value, second[0].value) == (b"a" * 100_000, b"b" * 100_000)
    assert snapshot[:2] == b"PK"
    assert read_messages(raw)[0].value == b"a" * 100_000
