"""A whole shard, asked by clients: one test for each way through it."""

from collections import Counter

import msgspec
import pytest

from headrace.metadata.admission import TopicDefaults
from headrace.ports.disk import DiskEffect, DiskEvent, FromStore, OnStore, WriteJournal
from headrace.ports.host import StopWanted
from headrace.ports.network import Ticked
from headrace.shard.consensus.inbox import Inbox
from headrace.shard.effects import ShardEffect
from headrace.shard.owned.partitions import Partitions
from headrace.shard.shard import Shard
from headrace.storage.store import Opened, open_store
from headrace.vsr.events import OwnOp
from headrace.wire.batches import decode_batch_header, split_batches
from headrace.wire.commands import groups, messages, streams, system, tokens, topics, users
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.identifiers import Consumer, First, FromOffset, Last, Next, Strategy, ToPartition
from headrace.wire.numbers import ConsumerKind, Operation, UserStatus
from headrace.wire.options import make_options
from headrace.wire.replies import REPLY, read_answer
from tests.memory_disk import MemoryDisk
from tests.shard.whole import Client, Whole, store_config

ME = Consumer(ConsumerKind.CONSUMER, 1)


def with_topic(node: Whole, partitions: int = 1) -> Client:
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", partitions, "t"))
    return client


def poll(
    client: Client,
    start: Strategy = First(),  # noqa: B008
    count: int = 100,
    *,
    auto: bool = False,
    who: Consumer = ME,
) -> messages.PolledMessages:
    request = messages.PollMessages(
        consumer=who,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=start,
        count=count,
        auto_commit=auto,
    )
    polled = client.ask(messages.POLL_MESSAGES, request)
    assert isinstance(polled, messages.PolledMessages)
    return polled


def test_ping_needs_no_login() -> None:
    node = Whole()
    assert Client(node, 5).ask(system.PING) is None


def test_a_message_comes_back() -> None:
    node = Whole()
    client = with_topic(node)
    assert client.send("s", "t", [b"one", b"two"]).base_offset == 0
    assert client.send("s", "t", [b"three"]).base_offset == 2
    polled = poll(client)
    assert (polled.messages_count, polled.current_offset) == (3, 2)
    assert b"three" in bytes(polled.batches)


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_what_was_acknowledged_survives_two_restarts(is_power_cut: bool) -> None:
    node = Whole()
    client = with_topic(node)
    for number in range(20):
        client.send("s", "t", [b"message %d" % number] * 3)
    for _ in range(2):
        node.crash(is_power_cut=is_power_cut)
        client = node.client(client=77)
        polled = poll(client)
        assert polled.messages_count == 60
        offsets = [decode_batch_header(each).base_offset for each in split_batches(polled.batches)]
        assert offsets == list(range(0, 60, 3))


def test_every_strategy_and_auto_commit() -> None:
    node = Whole()
    client = with_topic(node)
    for number in range(10):
        client.send("s", "t", [b"%d" % number])
    assert poll(client, FromOffset(4), 2).messages_count == 2
    assert poll(client, Last(), 3).messages_count == 3
    assert poll(client, Next(), 4, auto=True).messages_count == 4
    first = decode_batch_header(poll(client, Next(), 1, auto=True).batches)
    assert first.base_offset == 4
    request = messages.GetOffset(ME, "s", "t", 0)
    assert client.ask(messages.GET_OFFSET, request).stored_offset == 4


def test_a_resent_request_is_applied_once_and_confirmed_again() -> None:
    """O4.2: the retry comes on a new connection of the same client."""
    node = Whole()
    client = with_topic(node)
    frame = client.send_frame_of("s", "t", [b"once"], number=50)
    first = client.send_frame(bytearray(frame))
    client.close()
    again = node.client(client=client.client)
    retried = again.send_frame(again.send_frame_of("s", "t", [b"once"], number=50))
    assert retried[256:] == first[256:]
    assert poll(again).messages_count == 1
    node.crash()
    third = node.client(client=client.client)
    retried = third.send_frame(third.send_frame_of("s", "t", [b"once"], number=50))
    assert retried[256:] == first[256:]
    assert poll(third).messages_count == 1


def test_purge_is_seen_by_who_asked_for_it() -> None:
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"gone"])
    client.ask(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t"))
    assert poll(client).messages_count == 0
    assert client.send("s", "t", [b"new"]).base_offset == 0
    node.crash()
    assert poll(node.client(client=9)).messages_count == 1


def test_a_topic_made_anew_has_nothing_of_its_namesake() -> None:
    """CR11, MD-4."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"old"])
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    assert poll(client).messages_count == 0
    assert client.send("s", "t", [b"new"]).base_offset == 0
    for _ in range(2):
        node.crash()
        client = node.client(client=9)
        assert b"new" in bytes(poll(client).batches)
        assert b"old" not in bytes(poll(client).batches)


def test_users_tokens_and_permissions() -> None:
    node = Whole()
    root = with_topic(node)
    made = users.CreateUser(username="anna", password=b"secret", status=UserStatus.ACTIVE)
    root.ask(users.CREATE_USER, made)
    anna = node.client(("anna", b"secret"), client=500)
    with pytest.raises(RefusedError, match="41"):
        anna.send("s", "t", [b"no"])
    created = anna.ask(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0))
    assert created.token.startswith("token-")
    assert [each.name for each in anna.ask(tokens.GET_TOKENS)] == ["mine"]
    change = users.ChangePassword("anna", b"secret", b"another")
    assert anna.ask(users.CHANGE_PASSWORD, change) is None
    node.client(("anna", b"another"), client=501)


def test_a_group_is_dealt_and_its_members_leave_with_their_connection() -> None:
    node = Whole()
    client = with_topic(node, partitions=4)
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    client.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    other = node.client(client=700)
    other.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    sync = groups.SyncGroup("s", "t", "g")
    assert len(client.ask(groups.SYNC_GROUP, sync).partitions) == 2
    other.close()
    assert len(client.ask(groups.SYNC_GROUP, sync).partitions) == 4
    node.crash()
    client = node.client(client=701)
    assert client.ask(groups.GET_GROUP, groups.GetGroup("s", "t", "g")).members == ()


def test_a_whole_journal_goes_round() -> None:
    """Checkpoints free the journal; everything is in segments then."""
    node = Whole()
    client = with_topic(node)
    for number in range(200):
        client.send("s", "t", [bytes([number % 256]) * 30_000])
        if number % 50 == 0:
            node.tick(10)
    assert node.shard.data_plane.checkpoints.done_count > 3
    node.crash(is_power_cut=True)
    client = node.client(client=9)
    polled = poll(client, FromOffset(0), 1000)
    assert polled.current_offset == 199
    seen = 0
    while seen < 200:
        polled = poll(client, FromOffset(seen), 1000)
        assert polled.messages_count > 0
        seen += polled.messages_count


def replicated(node: Whole) -> Client:
    """Give a client of a topic that waits for no sync."""
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t"))
    return client


WEAK = TopicDefaults(
    durability="replicated",
    consumer_offset_durability="replicated",
    durability_minimum="replicated",
)


def test_after_a_power_cut_a_weak_topic_goes_on_above_its_ceiling() -> None:
    """FM-7, O3.5, PT-11: what was confirmed and lost is never confirmed again."""
    node = Whole(topic_defaults=WEAK)
    client = replicated(node)
    client.send("s", "t", [b"kept"])
    node.is_syncing = False
    lost = client.send("s", "t", [b"lost"])
    assert lost.base_offset == 1
    node.is_syncing = True
    told = []
    for _ in range(2):
        node.crash(is_power_cut=True)
        node.tick(200)
        told += [each.text for each in node.shard.take_findings() if each.kind == "lost"]
    (sentence,) = told
    assert sentence.startswith("offsets 1 to 65536 may have been given out and lost")
    client = node.client(client=9)
    again = client.send("s", "t", [b"new"])
    assert again.base_offset >= 65_536
    (local,) = node.shard.partitions.locals.values()
    assert local.machine.lost_ranges[0][0] == 1
    polled = poll(client, FromOffset(0), 10)
    assert b"kept" in bytes(polled.batches)
    assert b"lost" not in bytes(polled.batches)


def test_a_checkpoint_does_not_wait_for_a_partition_that_goes() -> None:
    """DK4: it waited for space that the deletion itself makes, and the journal stays full."""
    node = Whole()
    client = replicated(node)
    node.segments.is_full = True
    client.send("s", "t", [b"without space"])
    plane = node.shard.data_plane
    plane.want_checkpoint()
    node.tick(200)
    assert plane.checkpoints.done_count == 0
    client.ask(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    node.tick()
    assert plane.checkpoints.done_count == 1


def test_a_topic_that_is_made_and_purged_at_once() -> None:
    """Both are applied in one turn: the purge is ordered before the partition has files."""
    node = Whole()
    client, other = node.client(), node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    node.is_syncing = False
    client.post(client.make_frame(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t")))
    other.post(other.make_frame(topics.PURGE_TOPIC, topics.PurgeTopic("s", "t")))
    node.is_syncing = True
    node.tick()
    for asked in (client, other):
        read_answer(asked.take())
    assert client.send("s", "t", [b"first"]).base_offset == 0


def without_tail() -> Whole:
    """Give a node whose weak topic has confirmed what the next power cut takes."""
    node = Whole(topic_defaults=WEAK)
    client = replicated(node)
    client.send("s", "t", [b"kept"])
    node.is_syncing = False
    assert client.send("s", "t", [b"lost"]).base_offset == 1
    node.is_syncing = True
    return node


def test_what_a_power_cut_took_is_not_lost_again_with_every_kill() -> None:
    node = without_tail()
    node.crash(is_power_cut=True)
    for client in (8, 9, 10):
        node.client(client=client).send("s", "t", [b"new"])
        node.crash()
    (local,) = node.shard.partitions.locals.values()
    assert local.machine.lost_ranges == ((1, 65_537),)
    assert local.machine.next_offset == 65_540


@pytest.mark.parametrize("ending", ["kill", "checkpoint", "stop"])
def test_what_a_power_cut_took_is_remembered_until_the_log_says_so(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FM-7: a full journal on a full disk has no room for that; people are let in all the same."""
    node = without_tail()
    with monkeypatch.context() as full:
        propose = Inbox.propose

        def propose_others(inbox: Inbox, group: int, own: OwnOp) -> None:
            if own.operation != Operation.LOST_RANGE:
                propose(inbox, group, own)

        full.setattr(Inbox, "propose", propose_others)
        full.setattr(Partitions, "is_stuck", True)
        node.crash(is_power_cut=True)
        client = node.client(client=8)
        with pytest.raises(RefusedError) as refused:
            client.send("s", "t", [b"too early"])
        assert refused.value.code == Code.CANNOT_APPEND_MESSAGE
        if ending == "checkpoint":
            node.shard.data_plane.want_checkpoint()
            node.tick()
        elif ending == "stop":
            node.step(StopWanted())
            assert node.shard.is_stopped
    for again in (9, 10):
        node.crash()
        node.client(client=again)
    assert node.client(client=11).send("s", "t", [b"new"]).base_offset == 65_537


@pytest.mark.parametrize(("durability", "is_awaited"), [("persisted", False), ("replicated", True)])
def test_a_write_is_awaited_where_no_sync_is(durability: str, is_awaited: bool) -> None:
    node = Whole(topic_defaults=WEAK)
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    options = make_options({"durability": durability})
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t", options))
    client.send("s", "t", [b"first"])  # which waits for the ceiling
    written: list[WriteJournal] = []
    carry_out = node.disks[1].carry_out

    def look(effect: DiskEffect) -> DiskEvent | None:
        if isinstance(effect, WriteJournal):
            written.append(effect)
        return carry_out(effect)

    node.disks[1].carry_out = look  # type: ignore[method-assign]
    client.send("s", "t", [b"second"])
    assert [(each.is_awaited, each.sync) for each in written] == [(is_awaited, not is_awaited)]


def test_a_weak_topic_loses_nothing_to_a_kill() -> None:
    node = Whole(topic_defaults=WEAK)
    client = replicated(node)
    client.send("s", "t", [b"first"])  # which waits for the ceiling
    node.is_syncing = False
    client.send("s", "t", [b"written"])
    node.is_syncing = True
    node.crash()
    client = node.client(client=9)
    assert b"written" in bytes(poll(client).batches)
    assert client.send("s", "t", [b"next"]).base_offset == 2


def test_a_silent_member_is_evicted_and_its_partitions_are_dealt_anew() -> None:
    node = Whole(stale_ticks=300)
    client = with_topic(node, partitions=2)
    client.ask(groups.CREATE_GROUP, groups.CreateGroup("s", "t", "g"))
    silent = node.client(client=600)
    for member in (client, silent):
        member.ask(groups.JOIN_GROUP, groups.JoinGroup("s", "t", "g"))
    for _ in range(5):
        node.tick(100)
        client.ask(system.PING)
    sync = groups.SyncGroup("s", "t", "g")
    assert client.ask(groups.SYNC_GROUP, sync).partitions == (0, 1)
    with pytest.raises(EvictedError, match="STALE_CLIENT"):
        read_answer(silent.take())


def test_a_request_without_an_answer_is_answered_by_us() -> None:
    """O4.3: consensus has not answered in time, the outcome is unknown."""
    node = Whole()
    client = with_topic(node)
    node.is_syncing = False
    client.post(client.send_frame_of("s", "t", [b"waits"]))
    node.tick(1200)
    with pytest.raises(RefusedError, match="TRANSIENT_NOT_COMMITTED"):
        read_answer(client.take())


def test_a_request_that_never_found_room_is_told_so() -> None:
    """O4.3: it was not ordered, so the answer is that it may be sent again."""
    node = Whole()
    client = with_topic(node)
    node.is_syncing = False  # no checkpoint can become durable
    for _ in range(80):
        client.post(client.send_frame_of("s", "t", [bytes(60_000)]))
        node.tick()
    node.tick(1200)
    codes = Counter(REPLY.decode(frame).status for frame in node.inbox[client.connection])
    assert codes[Code.TRANSIENT_NOT_ACCEPTED] > 0
    assert codes[Code.TRANSIENT_NOT_COMMITTED] > 0
    ordered = codes[Code.TRANSIENT_NOT_COMMITTED]
    node.is_syncing = True
    node.tick(20)
    node.inbox[client.connection].clear()
    assert poll(client, Last(), 1).current_offset == ordered - 1


def test_a_fenced_partition_loses_nothing_while_the_others_go_on() -> None:
    """O2.4, P7: what its segment lacks travels in the journal until a restart writes it."""
    node = Whole()
    client = with_topic(node, partitions=2)
    other = ToPartition(1)
    for number in range(5):
        client.send("s", "t", [b"early %d" % number])
    node.tick(100)
    node.segments.failing = "input/output error"
    client.send("s", "t", [b"in the journal alone"])
    node.tick(100)
    node.segments.failing = None
    with pytest.raises(RefusedError, match="CANNOT_APPEND"):
        client.send("s", "t", [b"refused"])
    done = node.shard.data_plane.checkpoints.done_count
    for _ in range(200):
        client.send("s", "t", [bytes(30_000)], to=other)
        node.tick(2)
    assert node.shard.data_plane.checkpoints.done_count > done + 3
    for _ in range(2):
        node.crash(is_power_cut=True)
    client = node.client(client=9)
    polled = poll(client, FromOffset(0), 100)
    assert polled.messages_count == 6
    assert b"in the journal alone" in bytes(polled.batches)
    assert client.send("s", "t", [b"again"]).base_offset == 6


def test_a_full_journal_makes_requests_wait_and_stops_reading() -> None:
    """O2.6: nothing is refused, and everything that was sent is there in the end."""
    node = Whole()
    client = with_topic(node)
    node.is_syncing = False  # no checkpoint can become durable
    frames = [client.send_frame_of("s", "t", [bytes(60_000)]) for _ in range(40)]
    for frame in frames:
        client.post(frame)
        node.tick()
    was_reading = node.is_reading
    assert not was_reading
    node.is_syncing = True
    node.tick(20)
    answers = node.inbox[client.connection]
    assert len(answers) == 40
    while answers:
        read_answer(answers.pop())
    assert node.is_reading
    assert poll(client, Last(), 1).current_offset == 39


def test_a_message_that_no_record_holds_is_refused_for_good() -> None:
    node = Whole()
    client = with_topic(node)
    with pytest.raises(RefusedError, match="TOO_BIG"):
        client.send("s", "t", [bytes(1_500_000)])


def test_a_clean_stop_needs_no_repair() -> None:
    """SH-23, PR11."""
    node = Whole()
    client = with_topic(node)
    client.send("s", "t", [b"kept"])
    node.step(StopWanted())
    assert node.shard.is_stopped
    node.boot_identity += 1  # The machine was switched off and on again.
    node.start()
    assert poll(node.client(client=9)).messages_count == 1


def test_nothing_is_journaled_behind_a_clean_stop() -> None:
    """SH-23: the mark says that no power cut can have taken anything."""
    node = Whole()
    client = with_topic(node)
    node.step(StopWanted())
    assert node.shard.is_stopped
    with pytest.raises(RefusedError, match="TRANSIENT_NOT_ACCEPTED"):
        client.send("s", "t", [b"too late"])
    node.start()
    assert poll(node.client(client=9)).messages_count == 0


def test_a_poll_of_a_partition_that_goes_is_answered() -> None:
    node = Whole(tail_bytes_max=1)
    client = with_topic(node)
    client.send("s", "t", [b"x" * 2000])
    node.tick(10)
    request = messages.PollMessages(
        consumer=ME,
        stream="s",
        topic="t",
        partition_id=0,
        strategy=First(),
        count=1,
        auto_commit=False,
    )
    asked = client.make_frame(messages.POLL_MESSAGES, request)
    delete = client.make_frame(topics.DELETE_TOPIC, topics.DeleteTopic("s", "t"))
    node.is_reading_segments = False
    client.post(asked, delete)
    node.is_reading_segments = True
    node.tick()
    answers = node.inbox[client.connection]
    assert len(answers) == 2
    assert [REPLY.decode(answer).status for answer in answers] == [0, Code.PARTITION_NOT_FOUND]


@pytest.mark.parametrize("slow", [0, 1])
def test_no_store_is_written_before_both_know_of_the_start(slow: int) -> None:
    """DK16: a crash between the two openings must not make one of them seem older."""
    node = Whole()
    with_topic(node)
    opened = [
        open_store(msgspec.structs.replace(store_config(each), start=2), disk.image())
        for each, disk in enumerate(node.disks)
    ]
    assert isinstance(opened[0], Opened)
    assert isinstance(opened[1], Opened)
    shard = Shard(node.shard.settings, opened[0], opened[1])
    disks = [MemoryDisk(disk.image()) for disk in node.disks]
    journaled: list[int] = []
    held: list[OnStore] = []

    def carry_out(effects: list[ShardEffect], *, is_slow: bool) -> None:
        while effects:
            effect = effects.pop(0)
            if not isinstance(effect, OnStore):
                continue
            if is_slow and effect.store == slow:
                held.append(effect)
                continue
            if isinstance(effect.effect, WriteJournal):
                journaled.append(effect.store)
            answer = disks[effect.store].carry_out(effect.effect)
            if answer is not None:
                effects += shard.step(FromStore(effect.store, answer))

    carry_out(shard.start(), is_slow=True)
    for now in range(1, 20):
        carry_out(shard.step(Ticked(now, now)), is_slow=True)
    assert journaled == []
    carry_out([*held], is_slow=False)
    carry_out(shard.step(Ticked(20, 20)), is_slow=False)
    assert sorted(set(journaled)) == [0, 1]
