"""Hashes passwords with argon2id on a few threads, and mints tokens: the port of credentials.

```
caller     VerifyPassword, HashPassword -> waiting   MintToken -> TokenMinted at once
threads    one hash each -> PasswordVerified, PasswordHashed
           right, and stored at a lower cost than today's -> a second one, at that cost
```

A hash costs tens of milliseconds and megabytes on purpose. So only a few are computed at once, and
the queue is bounded: a flood of logins uses up neither the memory of the node nor the time of its
shard. The shard's thread has priority (`NICENESS`).

Invariants: every effect has one answer, unless the hasher is closed first; an unknown user costs
            what a wrong password costs.
"""

import logging
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread, get_native_id
from typing import Self

import msgspec
from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import (
    HashingError,
    InvalidHashError,
    VerificationError,
    VerifyMismatchError,
)
from argon2.low_level import error_to_str

from headrace.base.secret import Secret
from headrace.ports.credentials import (
    CredentialEffect,
    CredentialEvent,
    CredentialsBusy,
    HashPassword,
    MintToken,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
    VerifyPassword,
)

TOKEN_BYTES = 32
SALT_BYTES = 16
HASH_BYTES = 32
PASSWORD_CHARACTERS = 32
NICENESS = 5  # a third of the processor where all want it: logins must not starve either
NICENESS_MAX = 19
# Without the characters that look alike.
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"

# Errors of argon2 that a retry may avoid.
_PASSING = (error_to_str(-22), error_to_str(-33))  # no memory, no thread
_log = logging.getLogger(__name__)


class HashParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What a hash costs, how many are made at once, and how many may wait."""

    time_cost: int = 2
    memory_bytes: int = 19 << 20
    parallelism: int = 1
    at_once: int = 1
    waiting_max: int = 256


class CredentialHasher:
    """Carries out the effects of `headrace.ports.credentials`; one thread calls it.

    Effects without a hash are answered in `take_events` when `submit` returns; `wake` is called,
    from another thread, when there is more.
    """

    def __init__(self, parameters: HashParameters, wake: Callable[[], None]) -> None:
        assert parameters.at_once >= 1
        assert parameters.waiting_max >= 1
        self._waiting_max = parameters.waiting_max
        self._wake = wake
        self._hasher = PasswordHasher(
            time_cost=parameters.time_cost,
            memory_cost=parameters.memory_bytes >> 10,
            parallelism=parameters.parallelism,
            hash_len=HASH_BYTES,
            salt_len=SALT_BYTES,
        )
        # The password of an unknown user is compared with this: the hash of a random value.
        self._hash_of_nobody = self._hasher.hash(secrets.token_bytes(TOKEN_BYTES))
        # The condition guards what the threads share.
        self._changed = Condition()
        self._waiting: deque[VerifyPassword | HashPassword] = deque()
        self._events: list[CredentialEvent] = []
        self._failure: BaseException | None = None
        self._is_closed = False
        self._threads = [
            Thread(target=self._run, name=f"hasher {number}", daemon=True)
            for number in range(parameters.at_once)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads; waiting effects are not answered."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def submit(self, effect: CredentialEffect) -> None:
        """Start one effect; if too many wait, the answer is `CredentialsBusy`."""
        with self._changed:
            assert not self._is_closed
            if isinstance(effect, MintToken):
                self._events.append(TokenMinted(effect.token, make_token()))
            elif len(self._waiting) >= self._waiting_max:
                self._events.append(CredentialsBusy(effect.token))
            else:
                self._waiting.append(effect)
                self._changed.notify()

    def take_events(self) -> list[CredentialEvent]:
        """Return the answers since the last call; a failure of a thread is raised here."""
        if not self._events and self._failure is None:
            return []  # The usual answer, without taking the lock of the threads.
        with self._changed:
            if self._failure is not None:
                raise self._failure
            events, self._events = self._events, []
            return events

    def hash_now(self, password: Secret) -> str:
        """Hash a password in the caller's own thread, for the first user of a node."""
        return self._hasher.hash(password)

    def _run(self) -> None:
        _stand_back()
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
                effect = self._waiting.popleft()
            try:
                event = self._answer(effect)
            except BaseException as error:  # noqa: BLE001 - raised again where events are taken
                with self._changed:
                    self._failure = error
                self._wake()
                return
            with self._changed:
                self._events.append(event)
            self._wake()

    def _answer(self, effect: VerifyPassword | HashPassword) -> CredentialEvent:
        try:
            if isinstance(effect, HashPassword):
                return PasswordHashed(effect.token, self._hasher.hash(effect.password))
            is_right = self._is_right(effect)
            stronger = self._strengthen(effect) if is_right else None
            return PasswordVerified(effect.token, is_right, stronger)
        except (HashingError, VerificationError) as error:
            if str(error) not in _PASSING:
                raise
            _log.warning("a password was not hashed: %s", error)
            return CredentialsBusy(effect.token)

    def _is_right(self, effect: VerifyPassword) -> bool:
        if effect.password_hash is None:
            self._matches(self._hash_of_nobody, effect.password)
            return False
        try:
            return self._matches(effect.password_hash, effect.password)
        except (InvalidHashError, VerificationError, UnicodeError) as error:
            if str(error) in _PASSING:
                raise
            # The same answer: clients must not learn that a user's hash is damaged.
            _log.exception("a stored password hash is no hash, its user cannot log in")
            self._matches(self._hash_of_nobody, effect.password)
            return False

    def _strengthen(self, effect: VerifyPassword) -> str | None:
        """Return a hash at the configured cost if the stored one has a lower cost.

        A stored hash of higher cost stays: lowering the setting weakens no user.
        """
        assert effect.password_hash is not None
        stored = extract_parameters(effect.password_hash)
        is_weaker = (
            stored.time_cost < self._hasher.time_cost
            or stored.memory_cost < self._hasher.memory_cost
            or stored.hash_len < HASH_BYTES
        )
        return self._hasher.hash(effect.password) if is_weaker else None

    def _matches(self, password_hash: str, password: Secret) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except VerifyMismatchError:
            return False


def _stand_back() -> None:
    """Lower the priority of this thread below those that serve messages (bench/login.py).

    The threads that argon2 starts for its lanes inherit it. Only Linux has priorities of threads.
    """
    if sys.platform != "linux":
        return
    thread = get_native_id()
    lower = min(os.getpriority(os.PRIO_PROCESS, thread) + NICENESS, NICENESS_MAX)
    try:
        os.setpriority(os.PRIO_PROCESS, thread, lower)
    except OSError as error:
        _log.warning("passwords are hashed at the priority of everything else: %s", error)


def make_token() -> Secret:
    """Draw an access token of 256 bits, as hexadecimal text."""
    return Secret(secrets.token_hex(TOKEN_BYTES).encode())


def generate_password() -> str:
    """Draw a password of 186 bits that can be read aloud and typed."""
    return "".join(secrets.choice(ALPHABET) for _ in range(PASSWORD_CHARACTERS))
