"""The door itself: answers that tell nothing, one hash for each, and patience with guessers."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.base.secret import Secret
from headrace.ports.credentials import (
    CredentialEffect,
    CredentialEvent,
    HashPassword,
    VerifyPassword,
)
from headrace.runtime.credentials import CredentialHasher, HashParameters
from headrace.shard.effects import ShardEffect, ShardEvent
from headrace.wire.commands.counters import GET_COUNTERS
from headrace.wire.commands.session import LOGIN_PASSWORD
from headrace.wire.commands.users import (
    CREATE_USER,
    DELETE_USER,
    UPDATE_USER,
    CreateUser,
    DeleteUser,
    UpdateUser,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import UserStatus
from headrace.wire.replies import read_answer
from tests.e2e.raw import RawClient, make_register
from tests.known_secrets import make_password
from tests.node import Node, running_node
from tests.security.house import House, ask
from tests.shard.whole import Client, Whole

ROOT_PASSWORD = make_password("root")
CHEAP = HashParameters(time_cost=1, memory_bytes=64 << 10)
# Each names somebody who is not let in, and the password that is tried.
STRANGERS = {
    "unknown user": ("nobody", make_password("nobody")),
    "wrong password": ("alice", make_password("guessed")),
    "disabled user": ("disabled", make_password("disabled")),
    "deleted user": ("deleted", make_password("deleted")),
}


class HashingNode(Whole):
    """A shard whose passwords are hashed for real, and whose hashes are counted."""

    def __init__(self, hasher: CredentialHasher, woken: threading.Event) -> None:
        self._hasher = hasher
        self._woken = woken
        super().__init__(root_password_hash=hasher.hash_now(Secret(ROOT_PASSWORD)))

    def _carry_out(self, effect: ShardEffect) -> list[ShardEvent]:
        if isinstance(effect, VerifyPassword | HashPassword):
            return [self._answer(effect)]
        return super()._carry_out(effect)

    def _answer(self, effect: CredentialEffect) -> CredentialEvent:
        self._hasher.submit(effect)
        while not (events := self._hasher.take_events()):
            assert self._woken.wait(20)
            self._woken.clear()
        (event,) = events
        return event


@pytest.fixture
def node() -> Iterator[HashingNode]:
    woken = threading.Event()
    with CredentialHasher(CHEAP, woken.set) as hasher:
        made = HashingNode(hasher, woken)
        root = made.client(("iggy", ROOT_PASSWORD))
        for name in ("alice", "disabled", "deleted"):
            user = CreateUser(username=name, password=make_password(name), status=UserStatus.ACTIVE)
            root.ask(CREATE_USER, user)
        root.ask(UPDATE_USER, UpdateUser(user="disabled", status=UserStatus.INACTIVE))
        root.ask(DELETE_USER, DeleteUser("deleted"))
        yield made


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often argon2 was called, by what for."""
    counted: Counter[str] = Counter()
    for name in ("hash_secret", "verify_secret"):
        module = pytest.importorskip("argon2._password_hasher")
        real = getattr(module, name)

        def count(*args: object, _name: str = name, _real: object = real, **more: object) -> object:
            counted[_name] += 1
            assert callable(_real)
            return _real(*args, **more)

        monkeypatch.setattr(module, name, count)
    return counted


def knock(node: Whole, username: str, password: bytes) -> bytes:
    """Give the frame that answers a login, always of the same client."""
    client = Client(node, 77)
    request = make_register(username=username, password=password)
    frame = client.send_frame(client.make_frame(LOGIN_PASSWORD, request))
    client.close()
    return frame


def test_every_stranger_costs_one_hash_and_learns_nothing(
    node: HashingNode, hashes: Counter[str]
) -> None:
    frames = {}
    for kind, (username, password) in STRANGERS.items():
        hashes.clear()
        frames[kind] = knock(node, username, password)
        assert hashes == {"verify_secret": 1}, kind
    assert len(set(frames.values())) == 1
    with pytest.raises(EvictedError) as caught:
        read_answer(frames["unknown user"])
    assert caught.value.reason == EvictionReason.INVALID_CREDENTIALS


def test_whoever_is_let_in_costs_one_hash_too(node: HashingNode, hashes: Counter[str]) -> None:
    read_answer(knock(node, "alice", make_password("alice")))
    assert hashes == {"verify_secret": 1}


# Over the sockets of a node as it ships.


def try_login(house: House, username: str, password: bytes) -> str:
    """Log in on a new connection; say how it was answered."""
    with closing(house.connect()) as client:
        register = make_register(username=username, password=password)
        return ask(client, LOGIN_PASSWORD, register)


def raw_answer(node: Node, username: str, password: bytes) -> bytes:
    with closing(RawClient(node.tcp, 77)) as client:
        register = make_register(username=username, password=password)
        client.connection.send(client.make_frame(LOGIN_PASSWORD, register))
        frame = client.connection.receive()
        assert frame is not None
        return frame


@pytest.mark.slow
def test_strangers_get_the_same_bytes_from_a_node() -> None:
    with running_node() as node, House(node) as house:
        for name in ("alice", "disabled", "deleted"):
            house.add_user(name)
        update = UpdateUser(user="disabled", status=UserStatus.INACTIVE)
        house.root.call(UPDATE_USER, update)
        house.root.call(DELETE_USER, DeleteUser("deleted"))
        answers = {raw_answer(node, *who) for who in STRANGERS.values()}
        # The root user is known to everybody, and its password to nobody more for that.
        answers.add(raw_answer(node, "iggy", make_password("guessed")))
        assert len(answers) == 1


WRONG = "evicted INVALID_CREDENTIALS"
PAUSED = f"refused {Code.TRANSIENT_NOT_ACCEPTED.name}"
FREE = 5


@pytest.fixture
def house() -> Iterator[House]:
    with running_node() as node, House(node) as made:
        made.add_user("alice")
        made.add_user("bob")
        yield made


def commits(house: House) -> int:
    counters = house.root.call(GET_COUNTERS, None).counters
    return next(each.value for each in counters if each.name == "metadata.commit")


@pytest.mark.slow
def test_guesses_make_the_next_wait(house: House) -> None:
    """SE-3: also on a new connection, with the right password, and whether the user exists or not.

    Share: interop, about 5 s: the shortest pause is one second.
    """
    before = commits(house)
    guess = make_password("guessed")
    assert [try_login(house, "alice", guess) for _ in range(FREE)] == [WRONG] * FREE
    # From the same address, so everybody waits who could be the guesser ...
    assert try_login(house, "alice", guess) == PAUSED
    assert try_login(house, "alice", make_password("alice")) == PAUSED
    assert try_login(house, "bob", make_password("bob")) == PAUSED
    assert try_login(house, "nobody", guess) == PAUSED
    # ... but root from loopback, and nothing of this is written down.
    assert try_login(house, "iggy", guess) == WRONG
    assert commits(house) == before
    assert try_login(house, "iggy", b"iggy") == "done"
    # Nobody is locked out for good: tries that are refused do not make the pause longer. On a busy
    # machine it may be over by now.
    tries = 0
    while (answer := try_login(house, "alice", make_password("alice"))) == PAUSED:
        tries += 1
        assert tries < 100_000
    assert answer == "done"


@pytest.mark.slow
def test_open_sessions_are_not_touched_by_guesses(house: House) -> None:
    client = house.log_in("alice")
    for _ in range(FREE + 3):
        try_login(house, "alice", make_password("guessed"))
    with pytest.raises(RefusedError) as caught:
        client.call(DELETE_USER, DeleteUser("bob"))
    assert caught.value.code == Code.UNAUTHORIZED
    client.close()
