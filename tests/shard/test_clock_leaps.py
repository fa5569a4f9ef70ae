"""CK1: a wall clock that leaps deletes nothing, expires nothing and spoils no stamp."""

import pytest

from headrace.base.limits import MIB
from headrace.wire.batches import decode_batch_header, split_batches
from headrace.wire.commands import streams, tokens, topics, users
from headrace.wire.commands.clock import ACCEPT_TIME, AcceptedTime
from headrace.wire.commands.counters import GET_COUNTERS
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.fields import Field, FieldKind
from headrace.wire.identifiers import Last
from headrace.wire.numbers import UserStatus
from headrace.wire.options import make_options
from tests.shard.test_node import poll
from tests.shard.whole import START, Client, Whole

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
TEN_YEARS = 87_600 * HOUR
TICKS_OF_SECOND = 100
RETENTION_TICKS = 100
PAYLOADS = [b"x" * 1000] * 300


def with_old_data(expiry: int = HOUR) -> tuple[Whole, Client]:
    """A node with sealed segments in a topic whose messages expire."""
    node = Whole(segment_bytes_max=MIB, retention_ticks=RETENTION_TICKS)
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("s"))
    wanted = make_options({"message_expiry": Field(FieldKind.UINT64, expiry.to_bytes(8, "little"))})
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("s", 1, "t", wanted))
    for _ in range(9):
        client.send("s", "t", PAYLOADS)
    node.tick(20)
    assert segments_count(node) == 3
    return node, client


def segments_count(node: Whole) -> int:
    (local,) = node.shard.partitions.locals.values()
    return local.machine.segments_count


def newest_stamp(client: Client) -> int:
    """The stamp of the newest message that is there."""
    *_, last = split_batches(poll(client, Last(), 1).batches)
    return decode_batch_header(last).base_timestamp


def pass_time(node: Whole, micros: int) -> None:
    """Let a node run for a long while, in few steps."""
    for _ in range(10):
        node.now += micros // 100_000 - 1
        node.tick()
    node.tick(RETENTION_TICKS)


def turn_off(node: Whole, micros: int, *, is_power_cut: bool = False) -> None:
    """Have a node be down for a while."""
    node.now += micros // 10_000
    node.crash(is_power_cut=is_power_cut)


@pytest.mark.parametrize("expiry", [HOUR, 3 * HOUR])
def test_a_leap_deletes_nothing_while_the_node_runs_nor_after_restarts(expiry: int) -> None:
    node, _ = with_old_data(expiry)
    node.clock_ahead = TEN_YEARS
    node.tick(5 * TICKS_OF_SECOND)
    assert segments_count(node) == 3
    for is_power_cut in (False, True, False):
        node.crash(is_power_cut=is_power_cut)
        node.tick(5 * TICKS_OF_SECOND)
        assert segments_count(node) == 3


def test_small_leaps_do_not_add_up_to_one_that_deletes() -> None:
    node, _ = with_old_data()
    for leap in range(1, 40):
        node.clock_ahead = leap * 4 * MINUTE
        node.tick(RETENTION_TICKS // 2)
        if leap % 10 == 0:
            node.set("supported_time", node.shard.clock.time.steady)
            node.crash()
    node.tick(RETENTION_TICKS)
    assert segments_count(node) == 3
    assert node.shard.clock.time.lead > 2 * HOUR


def test_what_is_old_still_expires_in_its_time_during_a_leap() -> None:
    node, _ = with_old_data()
    node.clock_ahead = TEN_YEARS
    pass_time(node, HOUR - MINUTE)
    assert segments_count(node) == 3
    pass_time(node, 2 * MINUTE)
    assert segments_count(node) == 1


def test_stamps_stay_sensible_during_a_leap_and_after_a_restart() -> None:
    node, client = with_old_data()
    node.clock_ahead = TEN_YEARS
    pass_time(node, MINUTE)
    client.send("s", "t", [b"during"])
    assert abs(newest_stamp(client) - (node.clock - TEN_YEARS)) < SECOND
    node.crash()
    client = node.client(client=501)
    client.send("s", "t", [b"after"])
    assert abs(newest_stamp(client) - (node.clock - TEN_YEARS)) < 5 * SECOND
    node.clock_ahead = 0
    node.tick(2)
    client.send("s", "t", [b"put right"])
    assert abs(newest_stamp(client) - node.clock) < 5 * SECOND


def test_a_token_does_not_expire_by_a_leap() -> None:
    node, client = with_old_data()
    made = client.ask(tokens.CREATE_TOKEN, tokens.CreateToken("hourly", HOUR)).token
    session = Client(node, 601)
    session.login_by_token(made)
    node.clock_ahead = TEN_YEARS
    node.tick(2 * TICKS_OF_SECOND)
    session.send("s", "t", [b"still here"])
    node.crash()
    Client(node, 602).login_by_token(made)
    pass_time(node, HOUR)
    with pytest.raises(EvictedError):
        Client(node, 603).login_by_token(made)


def test_a_clock_that_falls_back_and_returns_makes_nothing_older() -> None:
    node, client = with_old_data()
    node.clock_ahead = -2 * HOUR
    node.tick(2 * TICKS_OF_SECOND)
    client.send("s", "t", [b"while it was behind"])
    stamp = newest_stamp(client)
    assert abs(stamp - (START + node.now * 10_000)) < SECOND
    for _ in range(6):
        client.send("s", "t", PAYLOADS)
    count = segments_count(node)
    node.clock_ahead = 0
    pass_time(node, HOUR // 2)
    assert segments_count(node) == count > 3


def test_an_ordinary_restart_needs_nobody() -> None:
    node, client = with_old_data()
    pass_time(node, 30 * MINUTE)  # nobody asks for anything
    turn_off(node, 3 * MINUTE)
    client = node.client(client=501)
    client.send("s", "t", [b"after"])
    assert abs(newest_stamp(client) - node.clock) < SECOND
    assert node.shard.clock.time.lead == 0
    pass_time(node, 28 * MINUTE)
    assert segments_count(node) == 1


def test_a_long_downtime_is_a_leap_until_it_is_accepted() -> None:
    node, _ = with_old_data()
    turn_off(node, 50 * HOUR)
    node.tick(5 * TICKS_OF_SECOND)
    assert segments_count(node) == 3
    assert node.shard.clock.time.lead > 49 * HOUR
    client = node.client(client=501)
    accepted = client.ask(ACCEPT_TIME)
    assert accepted == AcceptedTime(before=accepted.before, after=node.clock)
    assert node.clock - accepted.before > 49 * HOUR
    node.tick(2 * RETENTION_TICKS)
    assert segments_count(node) == 1
    client.send("s", "t", [b"after"])
    assert abs(newest_stamp(client) - node.clock) < SECOND


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_what_was_accepted_is_accepted_after_a_restart(is_power_cut: bool) -> None:
    node, client = with_old_data()
    node.clock_ahead = TEN_YEARS
    node.tick(10)
    client.ask(ACCEPT_TIME)
    node.crash(is_power_cut=is_power_cut)
    assert node.shard.clock.time.lead == 0
    node.tick(2 * RETENTION_TICKS)
    assert segments_count(node) == 1


def test_an_accepted_leap_ends_tokens_and_their_sessions() -> None:
    node, client = with_old_data()
    made = client.ask(tokens.CREATE_TOKEN, tokens.CreateToken("hourly", HOUR)).token
    session = Client(node, 601)
    session.login_by_token(made)
    node.clock_ahead = TEN_YEARS
    node.tick(10)
    client.ask(ACCEPT_TIME)
    node.tick(TICKS_OF_SECOND)
    with pytest.raises(EvictedError):
        session.send("s", "t", [b"x"])


def test_to_accept_a_clock_that_is_right_or_behind_changes_nothing() -> None:
    node, client = with_old_data()
    right = client.ask(ACCEPT_TIME)
    assert right.before == right.after == node.clock
    node.clock_ahead = -2 * HOUR
    node.tick(10)
    behind = client.ask(ACCEPT_TIME)
    assert behind.before == behind.after == START + node.now * 10_000
    assert node.shard.clock.time.lead == -2 * HOUR


def test_who_does_not_manage_servers_may_not_accept() -> None:
    node, client = with_old_data()
    ada = users.CreateUser(username="ada", password=b"secret", status=UserStatus.ACTIVE)
    client.ask(users.CREATE_USER, ada)
    node.clock_ahead = TEN_YEARS
    node.tick(10)
    with pytest.raises(RefusedError) as refused:
        node.client(("ada", b"secret"), client=501).ask(ACCEPT_TIME)
    assert refused.value.code == Code.UNAUTHORIZED
    node.tick(2 * RETENTION_TICKS)
    assert segments_count(node) == 3
    assert node.shard.clock.time.lead > TEN_YEARS - SECOND


def test_both_times_are_counted_and_the_operator_is_audited() -> None:
    node, client = with_old_data()
    node.clock_ahead = TEN_YEARS
    node.tick(10)
    found = {each.name: each.value for each in client.ask(GET_COUNTERS).counters}
    assert found["time.clock"] - found["time.believed"] == TEN_YEARS
    accepted = client.ask(ACCEPT_TIME)
    (told,) = [each for each in node.audited if each.event == "accept_time"]
    assert (told.user, told.outcome) == ("iggy", "ok")
    assert told.about == f"from {accepted.before} to {accepted.after}"


def test_a_log_whose_stamps_are_ahead_deletes_nothing_before_the_clock_is_there() -> None:
    """The clock was far ahead at the first start, and was put right then."""
    node, client = with_old_data()
    node.clock_ahead = TEN_YEARS
    node.tick(10)
    client.ask(ACCEPT_TIME)
    for _ in range(6):
        client.send("s", "t", PAYLOADS)
    node.tick(2)
    count = segments_count(node)
    node.clock_ahead = 0
    node.crash()
    pass_time(node, HOUR // 2)
    assert node.shard.clock.time.lead < -TEN_YEARS + SECOND
    assert segments_count(node) == count > 3


def test_an_idle_log_remembers_the_time_and_begins_with_its_root_user() -> None:
    node = Whole()
    replica = node.shard.metadata.replica
    assert (replica.op, len(node.shard.metadata.state.users)) == (1, 1)
    pass_time(node, 10 * MINUTE)
    assert node.clock - node.shard.metadata.state.timestamp < 2 * MINUTE
    assert replica.op <= 12


def test_a_start_on_a_machine_that_stayed_up_needs_nobody() -> None:
    """The monotonic clock counted on while the node was down, and confirms the wall clock."""
    node, client = with_old_data(3 * HOUR)
    node.now += 2 * HOUR // 10_000
    node.set("supported_time", node.clock - SECOND)
    node.crash()
    node.tick(2)
    assert node.shard.clock.time.lead == 0
    client = node.client(client=501)
    client.send("s", "t", [b"after"])
    assert abs(newest_stamp(client) - node.clock) < SECOND
    assert segments_count(node) == 3, "what is two hours old stays"


def test_a_leap_during_downtime_is_no_time_that_the_monotonic_clock_supports() -> None:
    node, _ = with_old_data()
    node.set("supported_time", node.clock + MINUTE)
    node.clock_ahead = TEN_YEARS
    node.crash()
    node.tick(5 * TICKS_OF_SECOND)
    assert node.shard.clock.time.lead > TEN_YEARS - HOUR
    assert segments_count(node) == 3
