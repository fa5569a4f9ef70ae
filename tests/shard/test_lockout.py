"""SE-3: who guesses waits, longer and longer, and nobody for good."""

import pytest

from headrace.shard.logins.lockout import (
    ENTRIES_MAX,
    FORGIVEN_TICKS,
    Lockout,
    Origin,
    origin_of,
)
from headrace.shard.settings import LockoutSettings

SECOND = 100
ANNA = Origin("anna", "192.0.2.1", is_exempt=False)


def pauses(lockout: Lockout, origin: Origin, count: int) -> list[int]:
    """Fail so often, each time as soon as it is allowed; give the pauses in seconds."""
    now, found = 0, []
    for _ in range(count):
        assert not lockout.is_refused(origin, now)
        pause = lockout.fail(origin, now)
        assert lockout.is_refused(origin, now) == (pause > 0)
        assert pause == 0 or lockout.is_refused(origin, now + pause - 1)
        found.append(pause // SECOND)
        now += pause
    return found


def test_five_are_free_and_then_the_pause_doubles_up_to_a_minute() -> None:
    assert pauses(Lockout(LockoutSettings()), ANNA, 13) == [
        *[0, 0, 0, 0],
        *[1, 2, 4, 8, 16, 32, 60],
        *[60, 60],  # what time forgives in a minute, the next failure makes up for
    ]


def test_another_account_from_the_same_address_waits_too() -> None:
    lockout = Lockout(LockoutSettings())
    for number in range(5):
        lockout.fail(Origin(f"user {number}", ANNA.network, is_exempt=False), 0)
    assert lockout.is_refused(ANNA, 0)
    assert not lockout.is_refused(ANNA._replace(network="192.0.2.2"), 0)


def test_the_same_account_from_another_address_waits_too() -> None:
    lockout = Lockout(LockoutSettings())
    for number in range(5):
        lockout.fail(Origin("anna", f"192.0.2.{number + 10}", is_exempt=False), 0)
    assert lockout.is_refused(ANNA, 0)
    assert not lockout.is_refused(ANNA._replace(username="bert"), 0)


def test_failures_are_forgiven_one_at_a_time() -> None:
    lockout = Lockout(LockoutSettings(failures_free=2))
    lockout.fail(ANNA, 0)
    assert lockout.fail(ANNA, FORGIVEN_TICKS) == 0  # the first is forgotten
    assert lockout.fail(ANNA, FORGIVEN_TICKS) == SECOND
    assert lockout.fail(ANNA, 1000 * FORGIVEN_TICKS) == 0


def test_root_from_loopback_never_waits() -> None:
    lockout = Lockout(LockoutSettings())
    root = origin_of("iggy", "127.0.0.1:4000", is_root=True)
    for _ in range(20):
        lockout.fail(origin_of("iggy", "192.0.2.9:1", is_root=True), 0)
        assert lockout.fail(root, 0) == 0
    assert not lockout.is_refused(root, 0)
    assert lockout.is_refused(origin_of("iggy", "192.0.2.8:1", is_root=True), 0)
    assert len(lockout) == 2  # nothing of loopback is kept


def test_memory_is_bounded_and_the_oldest_are_forgotten() -> None:
    lockout = Lockout(LockoutSettings(failures_free=1))
    for number in range(ENTRIES_MAX):
        lockout.fail(Origin(f"user {number}", f"{number}", is_exempt=False), 0)
    assert len(lockout) == ENTRIES_MAX
    assert not lockout.is_refused(Origin("user 0", "0", is_exempt=False), 0)
    newest = Origin(f"user {ENTRIES_MAX - 1}", "elsewhere", is_exempt=False)
    assert lockout.is_refused(newest, 0)


@pytest.mark.parametrize(
    ("address", "network", "is_loopback"),
    [
        ("192.0.2.7:4000", "192.0.2.7", False),
        ("127.0.0.9:4000", "127.0.0.9", True),
        ("[::1]:4000", "0000:0000:0000:0000", True),
        ("[::ffff:127.0.0.1]:4000", "127.0.0.1", True),
        ("[::ffff:192.0.2.7]:4000", "192.0.2.7", False),
        ("[2001:db8:1:2:3:4:5:6]:4000", "2001:0db8:0001:0002", False),
        ("[fe80::1%eth0]:4000", "fe80:0000:0000:0000", False),
        ("no address", "", False),
    ],
)
def test_where_a_login_comes_from(address: str, network: str, *, is_loopback: bool) -> None:
    assert origin_of("iggy", address, is_root=True) == Origin("iggy", network, is_loopback)
    assert not origin_of("anna", address, is_root=False).is_exempt
