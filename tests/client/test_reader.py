"""How a consumer reads: positions, losses, commits, groups; with a topic in memory."""

from datetime import UTC, datetime
from typing import Any, Unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import kernel
from headrace.client.consume import reader as reader_module
from headrace.client.consume.options import ConsumerOptions, read_consumer_options
from headrace.client.consume.reader import AHEAD_POLLS_PAUSE, Reader
from headrace.client.errors import DataLost, NotOwned, OffsetsReset, Unreadable
from headrace.client.messages import Message
from tests.client.broker import Broker, Partition


def filled(*counts: int) -> Broker:
    """Give a broker whose partitions have that many messages, in batches of up to three."""
    broker = Broker({number: Partition() for number in range(len(counts))})
    for number, count in enumerate(counts):
        for first in range(0, count, 3):
            values = [b"%d:%d" % (number, at) for at in range(first, min(first + 3, count))]
            broker.partitions[number].append(*values)
    return broker


def make_reader(broker: Broker, **options: Unpack[ConsumerOptions]) -> Reader:
    if "wait" not in options:
        options["wait"] = 0
    return Reader("shop/orders", read_consumer_options(options), now=lambda: broker.now)


def next_message(broker: Broker, reader: Reader) -> Message | None:
    while True:
        message = reader.take()
        if message is not None:
            return message
        if not broker.run(reader.work()):
            return None


def read_all(broker: Broker, reader: Reader) -> list[str]:
    read = []
    while (message := next_message(broker, reader)) is not None:
        read.append(message.text)
    return read


@settings(max_examples=25)
@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=4), count=st.integers(1, 9))
def test_every_message_once_and_in_order_for_each_partition(counts: list[int], count: int) -> None:
    broker = filled(*counts)
    read = read_all(broker, make_reader(broker, count=count))
    for number, wanted in enumerate(counts):
        mine = [text for text in read if text.startswith(f"{number}:")]
        assert mine == [f"{number}:{at}" for at in range(wanted)]
    assert len(read) == sum(counts)


def test_one_partition_alone() -> None:
    broker = filled(2, 2)
    assert read_all(broker, make_reader(broker, partition=1)) == ["1:0", "1:1"]


def test_a_name_goes_on_after_what_is_stored() -> None:
    broker = filled(5)
    broker.stored[0] = 2
    assert read_all(broker, make_reader(broker, name="me")) == ["0:3", "0:4"]


def test_latest_begins_behind_what_is_there() -> None:
    broker = filled(5, 0)
    reader = make_reader(broker, start="latest")
    assert read_all(broker, reader) == []
    broker.partitions[0].append(b"new")
    broker.partitions[1].append(b"first")
    assert sorted(read_all(broker, reader)) == ["first", "new"]


def test_an_offset_and_a_time_to_begin_at() -> None:
    broker = filled(9)
    assert read_all(broker, make_reader(broker, partition=0, start=7)) == ["0:7", "0:8"]
    broker.partitions[0].append(b"late", at=5_000_000)
    start = datetime.fromtimestamp(2, UTC)
    assert read_all(broker, make_reader(broker, start=start)) == ["late"]


def test_a_partition_that_is_made_later_is_read_from_its_beginning() -> None:
    broker = filled(1)
    reader = make_reader(broker, start="latest")
    assert read_all(broker, reader) == []
    broker.partitions[1] = Partition()
    broker.partitions[1].append(b"a", b"b")
    assert read_all(broker, reader) == []
    broker.now += 6
    assert read_all(broker, reader) == ["a", "b"]


def test_an_idle_consumer_waits_longer_and_longer_and_then_gives_up() -> None:
    broker = filled(0)
    assert read_all(broker, make_reader(broker, wait="1 s", poll_every="50 ms")) == []
    assert broker.pauses[:4] == [0.001, 0.002, 0.004, 0.008]
    assert max(broker.pauses) == 0.05
    assert 0.9 < broker.now <= 1.0


def test_a_message_that_comes_while_waiting_is_given() -> None:
    broker = filled(0)
    reader = make_reader(broker, wait=None)
    broker.on_pause = lambda: broker.partitions[0].append(b"there") if broker.now > 1 else None
    message = next_message(broker, reader)
    assert message is not None
    assert message.text == "there"


# Losses (D12).


def test_trimmed_messages_are_told_with_their_exact_range_and_reading_goes_on() -> None:
    broker = filled(9)
    broker.stored[0] = 0
    broker.partitions[0].trim(2)
    reader = make_reader(broker, name="me")
    with pytest.raises(DataLost) as raised:
        next_message(broker, reader)
    lost = raised.value
    assert (lost.partition, lost.first, lost.end, lost.resume) == (0, 1, 6, 6)
    assert str(lost).startswith("shop/orders, partition 0: the 5 offsets 1 to 5 are gone")
    assert read_all(broker, reader) == ["0:6", "0:7", "0:8"]


def test_losses_may_be_skipped_and_are_counted() -> None:
    broker = filled(9)
    broker.stored[0] = 0
    broker.partitions[0].trim(2)
    reader = make_reader(broker, name="me", on_loss="skip")
    assert read_all(broker, reader) == ["0:6", "0:7", "0:8"]
    assert reader.lost_count == 5


def test_an_offset_to_begin_at_that_is_gone_is_a_loss() -> None:
    broker = filled(9)
    broker.partitions[0].trim(1)
    reader = make_reader(broker, partition=0, start=1)
    with pytest.raises(DataLost) as raised:
        next_message(broker, reader)
    assert (raised.value.first, raised.value.end) == (1, 3)


def test_the_oldest_message_is_no_loss_for_who_asked_for_the_earliest() -> None:
    broker = filled(9)
    broker.partitions[0].trim(1)
    assert read_all(broker, make_reader(broker))[0] == "0:3"


def test_a_gap_between_batches_of_one_poll_is_a_loss() -> None:
    broker = filled(3)
    broker.partitions[0].skip(10)
    broker.partitions[0].append(b"after", b"it")
    reader = make_reader(broker)
    assert [next_message(broker, reader).text for _ in range(3)] == ["0:0", "0:1", "0:2"]  # type: ignore[union-attr] # there are three
    with pytest.raises(DataLost) as raised:
        next_message(broker, reader)
    assert (raised.value.first, raised.value.end) == (3, 13)
    assert read_all(broker, reader) == ["after", "it"]


def test_a_purged_partition_is_told_after_a_while() -> None:
    broker = filled(9)
    reader = make_reader(broker, wait="20 s")
    for _ in range(9):
        next_message(broker, reader)
    broker.partitions[0].purge()
    broker.partitions[0].append(b"new")
    with pytest.raises(OffsetsReset) as raised:
        next_message(broker, reader)
    assert (raised.value.position, raised.value.last) == (9, 0)
    assert broker.now >= 5  # a replica that lags looks the same, for a moment
    message = next_message(broker, reader)
    assert message is not None
    assert message.text == "new"


# Commits.


def test_each_stores_a_message_when_the_next_is_asked_for() -> None:
    broker = filled(3)
    reader = make_reader(broker, name="me", commit="each")
    next_message(broker, reader)
    assert broker.stored == {}
    next_message(broker, reader)
    assert broker.stored == {0: 0}
    next_message(broker, reader)
    assert broker.stored == {0: 1}


def test_periodic_stores_when_its_time_has_come() -> None:
    broker = filled(6)
    reader = make_reader(broker, name="me", commit_every="1 s")
    for _ in range(3):
        next_message(broker, reader)
    assert broker.stored == {}
    broker.now += 1.5
    next_message(broker, reader)
    assert broker.stored == {0: 2}


def test_periodic_stores_while_it_waits() -> None:
    broker = filled(2)
    reader = make_reader(broker, name="me", wait="3 s")
    assert len(read_all(broker, reader)) == 2
    assert broker.stored == {0: 1}


def test_manual_stores_only_by_hand() -> None:
    broker = filled(4)
    reader = make_reader(broker, name="me", commit="manual")
    first = next_message(broker, reader)
    next_message(broker, reader)
    broker.run(reader.store(first))
    assert broker.stored == {0: 0}
    reader.finish_handed()
    broker.run(reader.store())
    assert broker.stored == {0: 1}
    next_message(broker, reader)
    broker.run(reader.end(is_clean=True))
    assert broker.stored == {0: 1}


@pytest.mark.parametrize(("is_clean", "stored"), [(True, 1), (False, 0)])
def test_the_end_stores_the_last_message_unless_it_failed(is_clean: bool, stored: int) -> None:
    broker = filled(3)
    reader = make_reader(broker, name="me")
    next_message(broker, reader)
    next_message(broker, reader)
    broker.run(reader.end(is_clean=is_clean))
    assert broker.stored == {0: stored}


def test_nothing_is_stored_without_a_name() -> None:
    broker = filled(3)
    reader = make_reader(broker)
    read_all(broker, reader)
    broker.run(reader.end(is_clean=True))
    assert broker.stored == {}
    with pytest.raises(ValueError, match="neither name nor group"):
        broker.run(reader.store())


def test_a_batch_is_done_when_the_next_is_asked_for() -> None:
    broker = filled(6)
    reader = make_reader(broker, name="me", commit="each", count=3)
    assert broker.run(reader.work())
    first = reader.take_batch()
    assert first is not None
    assert len(first) == 3
    assert reader.take_batch() is None
    assert broker.run(reader.work())
    assert broker.stored == {0: 2}


# Groups.


def test_a_group_that_does_not_exist_is_made() -> None:
    broker = filled(2)
    broker.has_group = False
    broker.deals_on_join = (0,)
    assert read_all(broker, make_reader(broker, group="g")) == ["0:0", "0:1"]
    assert broker.count("create consumer group") == 1


def test_a_member_reads_what_it_is_dealt() -> None:
    broker = filled(2, 2, 2)
    broker.deals_on_join = (0, 2)
    read = read_all(broker, make_reader(broker, group="g"))
    assert sorted(read) == ["0:0", "0:1", "2:0", "2:1"]


def test_a_partition_that_is_dealt_to_another_is_left_after_what_was_read_is_stored() -> None:
    broker = filled(2, 9)
    broker.deals_on_join = (0, 1)
    reader = make_reader(broker, group="g", count=2)
    assert len([next_message(broker, reader) for _ in range(4)]) == 4
    broker.dealt = (0,)  # the other one is pending: still owned, no longer to be polled
    assert read_all(broker, reader) == []
    assert broker.stored[1] == 1


def test_a_partition_that_is_gained_begins_after_what_its_group_has_stored() -> None:
    broker = filled(1, 5)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g")
    assert read_all(broker, reader) == ["0:0"]
    broker.stored[1] = 2
    broker.dealt = (0, 1)
    broker.now += 6
    assert read_all(broker, reader) == ["1:3", "1:4"]


def test_who_lost_its_membership_joins_again() -> None:
    broker = filled(4)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", count=2, commit="each")
    next_message(broker, reader)
    next_message(broker, reader)
    broker.dealt = None  # as after a lost connection
    assert read_all(broker, reader) == ["0:2", "0:3"]
    assert broker.count("join consumer group") == 2


def test_who_joins_again_stores_what_it_had_done_and_reads_nothing_twice() -> None:
    broker = filled(6)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="periodic", count=3)
    for _ in range(3):
        next_message(broker, reader)
    broker.dealt, broker.owned = None, ()  # its connection was lost: it owns nothing
    broker.on_join = lambda: setattr(broker, "owned", (0,))
    broker.now += 2  # time to store
    assert read_all(broker, reader) == ["0:3", "0:4", "0:5"]
    assert broker.stored == {0: 2}


def test_who_joins_again_never_stores_less_than_others_have() -> None:
    broker = filled(6)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="periodic", count=3)
    for _ in range(3):
        next_message(broker, reader)
    broker.dealt, broker.stored = None, {0: 4}  # another member has read on meanwhile
    assert read_all(broker, reader) == ["0:5"]
    broker.run(reader.end(is_clean=True))
    assert broker.stored == {0: 5}


def test_what_is_refused_is_not_stored_over_what_others_have() -> None:
    broker = filled(9)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="periodic", count=9)
    for _ in range(3):
        next_message(broker, reader)
    broker.dealt, broker.owned, broker.stored = None, (), {0: 6}
    broker.on_join = lambda: setattr(broker, "owned", (0,))
    broker.now += 2
    assert read_all(broker, reader) == ["0:7", "0:8"]
    broker.run(reader.end(is_clean=True))
    assert broker.stored == {0: 8}


def test_a_partition_that_was_away_for_a_while_is_read_on_where_others_left_it() -> None:
    broker = filled(9)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="each", count=2)
    next_message(broker, reader)
    next_message(broker, reader)
    broker.generation, broker.stored = 3, {0: 6}  # dealt away, read on, and dealt back
    broker.now += 6
    reader.finish_handed()
    reader._done.clear()
    assert read_all(broker, reader) == ["0:7", "0:8"]


def test_a_new_generation_alone_changes_nothing() -> None:
    broker = filled(6)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="manual", count=2)
    next_message(broker, reader)
    next_message(broker, reader)
    broker.generation = 2
    broker.now += 6
    assert read_all(broker, reader) == ["0:2", "0:3", "0:4", "0:5"]


def test_after_a_new_membership_the_rest_of_a_poll_comes_once() -> None:
    """Two partitions, each half handed out, and the connection is lost."""
    broker = filled(4, 4)
    broker.deals_on_join = (0, 1)
    reader = make_reader(broker, group="g", commit="periodic", count=4)
    read = [next_message(broker, reader) for _ in range(6)]
    texts = [message.text for message in read if message is not None]
    broker.dealt, broker.owned = None, ()
    broker.on_join = lambda: setattr(broker, "owned", (0, 1))
    broker.now += 2
    texts += read_all(broker, reader)
    assert sorted(texts) == sorted(f"{p}:{n}" for p in range(2) for n in range(4))


def test_single_messages_and_batches_of_one_poll_do_not_mix() -> None:
    broker = filled(3)
    reader = make_reader(broker)
    next_message(broker, reader)
    with pytest.raises(ValueError, match="not both"):
        reader.take_batch()


def test_an_older_message_stored_by_hand_leaves_what_is_done() -> None:
    broker = filled(3)
    reader = make_reader(broker, name="me", commit="manual")
    first = next_message(broker, reader)
    for _ in range(2):
        next_message(broker, reader)
    broker.run(reader.store(first))
    assert broker.stored == {0: 0}
    broker.run(reader.store())
    assert broker.stored == {0: 1}


def test_what_another_member_owns_is_not_stored_and_not_read_on() -> None:
    broker = filled(4)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="each", count=2)
    next_message(broker, reader)
    broker.owned, broker.dealt = (), ()
    assert read_all(broker, reader) == []
    assert broker.stored == {}


def test_by_hand_the_loss_of_a_partition_is_told() -> None:
    broker = filled(4)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g", commit="manual")
    message = next_message(broker, reader)
    broker.owned = ()
    with pytest.raises(NotOwned):
        broker.run(reader.store(message))


def test_the_end_leaves_the_group() -> None:
    broker = filled(1)
    broker.deals_on_join = (0,)
    reader = make_reader(broker, group="g")
    read_all(broker, reader)
    broker.run(reader.end(is_clean=True))
    assert broker.dealt is None
    assert broker.stored == {0: 0}


def test_who_never_began_has_nothing_to_end() -> None:
    broker = filled(1)
    broker.run(make_reader(broker, group="g").end(is_clean=True))
    assert broker.calls == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "a", "group": "b"}, "one of the two"),
        ({"group": "g", "partition": 1}, "assigns the partitions"),
        ({"commit": "each"}, "needs a name"),
        ({"name": "a", "commit": "never"}, "none of each"),
        ({"start": "middle"}, "none of earliest"),
        ({"start": 5}, "needs one partition"),
        ({"start": "next", "name": "a"}, "continues after its stored offset"),
        ({"start": -1, "partition": 0}, "no offset"),
        ({"start": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - that is the point
        ({"count": 0}, "count"),
        ({"wait": "soon"}, "wait"),
        ({"poll_every": 0}, "poll_every"),
        ({"on_loss": "cry"}, "on_loss"),
    ],
)
def test_wrong_options_are_refused(options: ConsumerOptions, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_consumer_options(options)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls of a few messages are sent ahead, too."""
    monkeypatch.setattr(reader_module, "AHEAD_COUNT_MIN", 3)


@pytest.mark.usefixtures("few")
def test_after_a_full_poll_the_next_one_is_sent_ahead() -> None:
    broker = filled(7)
    reader = make_reader(broker, count=3)
    assert next_message(broker, reader) is not None
    assert len(broker.ahead) == 1
    assert broker.count("poll messages") == 2
    assert len(read_all(broker, reader)) == 6
    assert len(broker.ahead) == 2  # The last poll was not full.
    assert broker.count("poll messages") == 4


@pytest.mark.usefixtures("few")
def test_messages_that_come_after_a_poll_was_sent_ahead_are_found() -> None:
    broker = filled(3)
    reader = make_reader(broker, count=3)
    assert next_message(broker, reader) is not None
    assert len(broker.ahead) == 1  # and its answer is empty
    broker.partitions[0].append(b"new")
    assert read_all(broker, reader) == ["0:1", "0:2", "new"]


@pytest.mark.parametrize(
    "options",
    [
        {"group": "all"},
        {"name": "me", "commit": "each"},
        {"partition": 0, "start": 5},
        {"count": 2},
    ],
)
@pytest.mark.usefixtures("few")
def test_polls_that_are_not_sent_ahead(options: ConsumerOptions) -> None:
    """Of a group; where each message is stored; where few are left, or asked for."""
    broker = filled(7)
    broker.deals_on_join = (0,)
    options.setdefault("count", 3)
    reader = make_reader(broker, **options)
    assert next_message(broker, reader) is not None
    assert broker.ahead == []


def test_messages_one_by_one_and_batches_are_polled_as_they_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who takes messages gets values copied once; who takes batches gets columns."""
    forms: list[str] = []
    for name in ("split", "columns"):
        real = getattr(kernel, name)

        def note(*arguments: object, name: str = name, real: Any = real) -> object:
            forms.append(name)
            return real(*arguments)

        monkeypatch.setattr(kernel, name, note)
    broker = filled(9)
    reader = make_reader(broker, count=3)
    assert next_message(broker, reader) is not None
    assert forms == ["split"]
    for _ in range(2):
        next_message(broker, reader)
    assert reader.take_batch() is None
    assert broker.run(reader.work())
    assert forms == ["split", "columns"]
    batch = reader.take_batch()
    assert batch is not None
    assert [message.text for message in batch] == ["0:3", "0:4", "0:5"]


def test_a_batch_of_messages_that_were_to_be_taken_one_by_one() -> None:
    broker = filled(3)
    reader = make_reader(broker, count=3)
    assert reader.take() is None
    assert broker.run(reader.work())
    batch = reader.take_batch()
    assert batch is not None
    assert batch.columns.payloads == b"0:00:10:2"


@pytest.mark.usefixtures("few")
def test_batches_are_not_sent_ahead() -> None:
    broker = filled(7)
    reader = make_reader(broker, count=3)
    assert reader.take_batch() is None
    assert broker.run(reader.work())
    assert broker.ahead == []


@pytest.mark.usefixtures("few")
def test_nothing_is_sent_ahead_for_a_while_when_it_was_discarded() -> None:
    broker = filled(3 * (AHEAD_POLLS_PAUSE + 5))
    reader = make_reader(broker, count=3)
    assert next_message(broker, reader) is not None
    broker.ahead[0].is_discarded = True
    for _ in range(3 * AHEAD_POLLS_PAUSE):
        next_message(broker, reader)
    assert len(broker.ahead) == 1
    assert len(read_all(broker, reader)) == 3 * 5 - 1
    assert len(broker.ahead) > 1


@pytest.mark.usefixtures("few")
def test_a_position_that_changes_is_polled_anew() -> None:
    broker = filled(9)
    reader = make_reader(broker, count=3)
    assert next_message(broker, reader) is not None
    assert len(broker.ahead) == 1
    reader.skip(Unreadable("shop/orders", 0, first=3, end=5))
    assert read_all(broker, reader) == ["0:1", "0:2", *(f"0:{at}" for at in range(5, 9))]


def test_a_message_that_is_not_processed_is_not_stored() -> None:
    broker = filled(6)
    reader = make_reader(broker, count=3, name="me", commit="manual")
    for _ in range(2):
        next_message(broker, reader)
    broker.run(reader.store())
    assert broker.stored == {0: 0}
    reader.finish_handed()
    broker.run(reader.store())
    assert broker.stored == {0: 1}
    for _ in range(3):
        next_message(broker, reader)
    broker.run(reader.end(is_clean=False))
    assert broker.stored == {0: 1}
    broker.run(reader.store())
    assert broker.stored == {0: 3}
