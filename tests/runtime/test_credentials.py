"""Hashing credentials: real hashes, at a small price."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock

import pytest
from argon2.exceptions import HashingError, VerificationError
from argon2.low_level import error_to_str

from headrace.base.secret import Secret
from headrace.ports.credentials import (
    CredentialEvent,
    CredentialsBusy,
    HashPassword,
    MintToken,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
    VerifyPassword,
)
from headrace.runtime.credentials import (
    ALPHABET,
    NICENESS,
    CredentialHasher,
    HashParameters,
    generate_password,
)

WAIT_SECONDS = 10
CHEAP = HashParameters(time_cost=1, memory_bytes=64 << 10, at_once=2, waiting_max=3)
RIGHT, WRONG = Secret(b"correct horse"), Secret(b"correct house")
NO_MEMORY = error_to_str(-22)


class Bench:
    """A hasher, and a caller that waits for its events."""

    def __init__(self, parameters: HashParameters = CHEAP) -> None:
        self.woken = Event()
        self.hasher = CredentialHasher(parameters, self.woken.set)

    def wait(self, count: int) -> list[CredentialEvent]:
        events = self.hasher.take_events()
        while len(events) < count:
            assert self.woken.wait(WAIT_SECONDS)
            self.woken.clear()
            events += self.hasher.take_events()
        assert len(events) == count
        return events


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    with made.hasher:
        yield made


class Gate:
    """Holds hashes back, and counts how many are being made at once."""

    def __init__(self, hasher: CredentialHasher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = Event()
        self.entered = 0
        self.at_once = 0
        self.at_once_max = 0
        self._lock = Lock()
        self._matches: Callable[[str, Secret], bool] = hasher._matches
        monkeypatch.setattr(hasher, "_matches", self.pass_through)

    def pass_through(self, password_hash: str, password: Secret) -> bool:
        with self._lock:
            self.entered += 1
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        assert self.is_open.wait(WAIT_SECONDS)
        try:
            return self._matches(password_hash, password)
        finally:
            with self._lock:
                self.at_once -= 1


def test_a_hash_is_a_phc_string_with_a_fresh_salt(bench: Bench) -> None:
    bench.hasher.submit(HashPassword(1, RIGHT))
    bench.hasher.submit(HashPassword(2, RIGHT))
    hashes = {}
    for event in bench.wait(2):
        assert isinstance(event, PasswordHashed)
        hashes[event.token] = event.password_hash
    assert sorted(hashes) == [1, 2]
    assert hashes[1] != hashes[2]
    for text in (*hashes.values(), bench.hasher.hash_now(RIGHT)):
        # 16 bytes of salt are 22 characters, 32 of hash 43.
        assert re.fullmatch(
            r"\$argon2id\$v=19\$m=64,t=1,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}", text
        )


def test_right_wrong_and_nobody(bench: Bench) -> None:
    stored = bench.hasher.hash_now(RIGHT)
    bench.hasher.submit(VerifyPassword(1, RIGHT, stored))
    bench.hasher.submit(VerifyPassword(2, WRONG, stored))
    bench.hasher.submit(VerifyPassword(3, RIGHT, None))
    events = bench.wait(3)
    assert PasswordVerified(1, is_right=True) in events
    assert PasswordVerified(2, is_right=False) in events
    assert PasswordVerified(3, is_right=False) in events


def stored_at(bench: Bench, *, time_cost: int, memory_bytes: int) -> str:
    other = HashParameters(time_cost=time_cost, memory_bytes=memory_bytes)
    with CredentialHasher(other, bench.woken.set) as hasher:
        return hasher.hash_now(RIGHT)


@pytest.mark.parametrize(("time_cost", "memory_bytes"), [(1, 64 << 10), (3, 128 << 10)])
def test_a_hash_that_costs_as_much_or_more_stays(
    bench: Bench, time_cost: int, memory_bytes: int
) -> None:
    stored = stored_at(bench, time_cost=time_cost, memory_bytes=memory_bytes)
    bench.hasher.submit(VerifyPassword(1, RIGHT, stored))
    assert bench.wait(1) == [PasswordVerified(1, is_right=True)]


def test_a_hash_that_costs_less_is_made_anew_for_the_right_password_alone(bench: Bench) -> None:
    stored = stored_at(bench, time_cost=2, memory_bytes=32 << 10)
    bench.hasher.submit(VerifyPassword(1, WRONG, stored))
    assert bench.wait(1) == [PasswordVerified(1, is_right=False)]
    bench.hasher.submit(VerifyPassword(2, RIGHT, stored))
    (event,) = bench.wait(1)
    assert isinstance(event, PasswordVerified)
    assert event.is_right
    assert event.stronger_hash is not None
    assert event.stronger_hash.startswith("$argon2id$v=19$m=64,t=1,p=1$")
    bench.hasher.submit(VerifyPassword(3, RIGHT, event.stronger_hash))
    assert bench.wait(1) == [PasswordVerified(3, is_right=True)]


def test_every_answer_costs_one_hash(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown user and wrong password: one real hash each, of the same parameters."""
    gate = Gate(bench.hasher, monkeypatch)
    gate.is_open.set()
    bench.hasher.submit(VerifyPassword(1, WRONG, bench.hasher.hash_now(RIGHT)))
    bench.wait(1)
    assert gate.entered == 1
    bench.hasher.submit(VerifyPassword(2, WRONG, None))
    bench.wait(1)
    assert gate.entered == 2
    prefix = bench.hasher.hash_now(RIGHT).rpartition("p=")[0]
    assert bench.hasher._hash_of_nobody.startswith(prefix)


@pytest.mark.parametrize(
    "stored", ["", "x", "\xe9", "$argon2id$v=19$x", "$argon2id$v=19$m=1,t=1,p=1$AAAA$AAAA"]
)
def test_a_damaged_hash_lets_nobody_in(
    bench: Bench, caplog: pytest.LogCaptureFixture, stored: str
) -> None:
    bench.hasher.submit(VerifyPassword(1, RIGHT, stored))
    assert bench.wait(1) == [PasswordVerified(1, is_right=False)]
    assert "no hash" in caplog.text
    assert RIGHT.decode() not in caplog.text


def test_few_hashes_at_once_and_few_that_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(bench.hasher, monkeypatch)
    stored = bench.hasher.hash_now(RIGHT)
    # Both threads are busy before the queue is filled.
    for token in (1, 2):
        bench.hasher.submit(VerifyPassword(token, RIGHT, stored))
        while gate.entered < token:
            assert not bench.woken.wait(0.001)
    for token in range(3, 9):
        bench.hasher.submit(VerifyPassword(token, RIGHT, stored))
    busy = bench.hasher.take_events()
    assert busy == [CredentialsBusy(token) for token in (6, 7, 8)]
    gate.is_open.set()
    assert sorted(event.token for event in bench.wait(5)) == [1, 2, 3, 4, 5]
    assert gate.at_once_max == 2
    # There is room again.
    bench.hasher.submit(VerifyPassword(9, RIGHT, stored))
    assert bench.wait(1) == [PasswordVerified(9, is_right=True)]


@pytest.mark.parametrize(
    ("effect", "method", "error"),
    [
        (HashPassword(1, RIGHT), "hash", HashingError(NO_MEMORY)),
        (VerifyPassword(1, RIGHT, None), "verify", VerificationError(NO_MEMORY)),
        (VerifyPassword(1, RIGHT, "$argon2id$"), "verify", VerificationError(NO_MEMORY)),
    ],
)
def test_without_memory_nothing_is_decided(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    effect: HashPassword | VerifyPassword,
    method: str,
    error: Exception,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(bench.hasher._hasher), method, fail)
    bench.hasher.submit(effect)
    assert bench.wait(1) == [CredentialsBusy(1)]
    assert caplog.record_tuples[0][1] == logging.WARNING


def test_a_thread_that_fails_is_heard_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(type(bench.hasher._hasher), "hash", fail)
    bench.hasher.submit(HashPassword(1, RIGHT))
    assert bench.woken.wait(WAIT_SECONDS)
    with pytest.raises(RuntimeError, match="no more"):
        bench.hasher.take_events()


def test_tokens_come_at_once(bench: Bench) -> None:
    bench.hasher.submit(MintToken(1))
    bench.hasher.submit(MintToken(2))
    one, two = bench.hasher.take_events()
    assert isinstance(one, TokenMinted)
    assert isinstance(two, TokenMinted)
    assert (one.token, two.token) == (1, 2)
    assert one.secret != two.secret
    for secret in (one.secret, two.secret):
        assert len(bytes.fromhex(secret.decode())) * 8 >= 256
    assert one.secret.decode() not in repr(one)


def test_closing_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    gate = Gate(bench.hasher, monkeypatch)
    for token in range(1, 6):
        bench.hasher.submit(VerifyPassword(token, RIGHT, None))
        while gate.entered < min(token, 2):
            assert not bench.woken.wait(0.001)
    gate.is_open.set()
    bench.hasher.close()
    bench.hasher.close()  # twice does no harm
    assert not any(thread.is_alive() for thread in bench.hasher._threads)


def test_generated_passwords() -> None:
    one, two = generate_password(), generate_password()
    assert one != two
    for password in (one, two):
        assert len(password) >= 24
        assert all(each in ALPHABET for each in password)
    assert len(dict.fromkeys(ALPHABET)) == len(ALPHABET)


def test_secrets_are_not_shown() -> None:
    secret = Secret(b"swordfish")
    shown = f"{secret} {secret!r} {secret!s} {[secret]} {VerifyPassword(1, secret, None)}"
    assert "swordfish" not in shown
    assert secret.decode() == "swordfish"


# The priority of threads.

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")


def niceness_of(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def threads() -> dict[int, None]:
    return dict.fromkeys(int(path.name) for path in Path("/proc/self/task").iterdir())


@linux
def test_who_hashes_stands_back_and_nobody_else_does(bench: Bench) -> None:
    usual = niceness_of(0)
    bench.hasher.submit(HashPassword(1, RIGHT))
    bench.wait(1)
    found = [niceness_of(thread.native_id or 0) for thread in bench.hasher._threads]
    assert min(usual + NICENESS, 19) in found  # One may not have begun yet.
    assert niceness_of(0) == usual


@linux
@pytest.mark.slow
def test_the_threads_of_a_hash_stand_back_too() -> None:
    """Argon2 starts a thread for each lane but the first."""
    usual = niceness_of(0)
    lanes = HashParameters(time_cost=1, memory_bytes=16 << 20, parallelism=4)
    bench = Bench(lanes)
    with bench.hasher:
        before = threads()
        bench.hasher.submit(HashPassword(1, RIGHT))
        seen: list[int] = []
        while not seen and not bench.woken.is_set():
            for thread in threads():
                if thread not in before:
                    try:
                        seen.append(niceness_of(thread))
                    except ProcessLookupError:  # It was short.
                        continue
        bench.wait(1)
    assert seen
    assert dict.fromkeys(seen) == {min(usual + NICENESS, 19): None}


def test_a_priority_that_is_refused_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    bench = Bench()
    with bench.hasher:
        bench.hasher.submit(HashPassword(1, RIGHT))
        assert isinstance(bench.wait(1)[0], PasswordHashed)
    if sys.platform == "linux":
        assert "passwords are hashed at the priority of everything else" in caplog.text
