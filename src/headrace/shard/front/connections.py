"""The connections, and which session each of them holds.

A client id belongs to one connection at a time, the one of its latest login.

```
FREE  -> BOUND  a login succeeded: it holds the session
BOUND -> FREE   it logged out, was evicted, or another connection logged in as its client
FREE  -> OVER   what its session rested on no longer holds: the session was taken from it
OVER  -> FREE   it logged out
```

Invariants: `by_client` names exactly the connections that hold a session.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from headrace.base.connection_numbers import home_of
from headrace.shard.front.credential import Credential
from headrace.shard.front.spent import Spent
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import Transport
from headrace.wire.requests import RequestHeader

NO_USER = -1
ADDRESSES_MAX = 20_000
_NO_CLIENT = bytes(16)
_SHORT_ID_MAX = 0xFFFF_FFFE


class Phase(Enum):
    """Whether a connection holds a session."""

    FREE = auto()  # it holds none, and may log in
    BOUND = auto()
    OVER = auto()  # its session was ended; it may log out, and no more


_NEXT: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.FREE: (Phase.BOUND, Phase.OVER),
    Phase.BOUND: (Phase.FREE,),
    Phase.OVER: (Phase.FREE,),
}


class Connection:
    """One connection of a client."""

    __slots__ = (
        "address",
        "client",
        "credential",
        "heard",
        "is_in_doubt",
        "number",
        "phase",
        "raw_client",
        "session",
        "short_id",
        "spent",
        "stands_for",
        "transport",
        "user_id",
    )

    def __init__(
        self, number: int, short_id: int, transport: Transport, address: str, *, heard: int
    ) -> None:
        self.number = number
        self.short_id = short_id  # what `get clients` shows
        self.transport = transport
        self.address = address
        self.heard = heard  # the tick of its last request
        self.client = 0
        self.raw_client = _NO_CLIENT  # as it stands in the headers of its requests
        self.user_id = NO_USER
        self.session = 0
        self.credential: Credential | None = None  # what its session rests on
        self.phase = Phase.FREE
        self.is_in_doubt = False  # Something that it asked for may yet be done (SE-9).
        self.spent = Spent(client=0)
        self.stands_for = 0  # of a guest: the connection whose request it is

    @property
    def home(self) -> int:
        """The shard on which it lives (SH-25)."""
        return home_of(self.number)

    @property
    def is_bound(self) -> bool:
        """Whether it holds a session."""
        return self.phase is Phase.BOUND

    @property
    def is_over(self) -> bool:
        """Whether its session was ended: it may log out, and no more."""
        return self.phase is Phase.OVER

    def stand_for(self, number: int, *, client: int, session: int, user_id: int) -> None:
        """Hold the session of a connection that lives on another shard, for one request of it."""
        assert self.phase is Phase.FREE, "a guest stands for one request"
        self.stands_for = number
        self.client = client
        self.raw_client = client.to_bytes(16, "little")
        self.user_id = user_id
        self.session = session
        self.spent = Spent(client)
        self.enter(Phase.BOUND)

    def enter(self, phase: Phase) -> None:
        """Go on to a phase."""
        assert phase in _NEXT[self.phase], (self.phase, phase)
        self.phase = phase

    def spend(self, header: RequestHeader) -> None:
        """Note that a request was answered here.

        Not if the session is another by now: that login's client may ask again before it reads
        this answer.
        """
        if header.session == self.session and header.client == self.client:
            assert self.spent.client == header.client, "numbers are spent by their own client"
            self.spent.note(header.request)

    def check_session(self, client: int, session: int) -> None:
        """Refuse what is asked in another session than the one that this connection holds.

        Raises:
            EvictedError: It holds none, or another one.
            RefusedError: The session that it held is over, and it may log out.
        """
        assert (self.session == 0) == (self.client == 0), "an id comes with its session"
        if self.session == session and self.client == client:
            assert self.phase is Phase.BOUND, "only who is bound holds a session"
            return
        if self.is_over:
            raise RefusedError(Code.UNAUTHORIZED, why="the session is over")
        reason = EvictionReason.NO_SESSION
        if self.client == client and session < self.session:
            reason = EvictionReason.SESSION_TOO_LOW
        raise EvictedError(reason, client=client)


class Connections:
    """All connections of a shard."""

    def __init__(self) -> None:
        self.by_number: dict[int, Connection] = {}  # those that are still there, guests included
        self.guests: dict[int, Connection] = {}  # each stands for one request of another shard
        self._by_client: dict[int, Connection] = {}
        self.requests_count = 0  # of requests that clients have sent, guests not included
        self._addresses: dict[int, str] = {}  # of clients, those that came back least lately first
        self._short_id = 0

    def __len__(self) -> int:
        return len(self.by_number) - len(self.guests)

    def open(self, number: int, transport: Transport, address: str, now: int) -> Connection:
        """Add a connection."""
        assert number not in self.by_number, "a number is of one connection"
        self._short_id = self._short_id % _SHORT_ID_MAX + 1
        assert 0 < self._short_id <= _SHORT_ID_MAX, "0 and all ones stand for no connection"
        connection = Connection(number, self._short_id, transport, address, heard=now)
        self.by_number[number] = connection
        return connection

    def close(self, number: int) -> Connection | None:
        """Forget a connection; return it as it was."""
        connection = self.by_number.pop(number, None)
        if connection is not None and self._by_client.get(connection.client) is connection:
            del self._by_client[connection.client]
        assert connection is None or connection.number == number, "it is found by its number"
        assert len(self._by_client) <= len(self.by_number), "a session goes with its connection"
        return connection

    def get(self, number: int) -> Connection | None:
        """Return a connection that is still there."""
        return self.by_number.get(number)

    def bound(self, number: int) -> Connection:
        """Return a connection that holds a session.

        Raises:
            RefusedError: It is gone, or its session is over.
        """
        found = self.by_number.get(number)
        if found is None or not found.is_bound:
            raise RefusedError(Code.UNAUTHENTICATED)
        assert found.session > 0, "who is bound holds a session"
        assert found.user_id != NO_USER, "a session is that of a user"
        return found

    def of_client(self, client: int) -> Connection | None:
        """Return the connection that holds a client's session."""
        return self._by_client.get(client)

    def bind(
        self, connection: Connection, *, client: int, credential: Credential, session: int
    ) -> None:
        """Bind a session to a connection; another one of the same client loses its own."""
        assert session > 0, "a session has the number of its op"
        assert connection.phase is Phase.FREE, "a connection holds one session after the other"
        assert self.by_number[connection.number] is connection, "only who is here gets a session"
        old = self._by_client.get(client)
        if old is not None and old is not connection:
            self._unbind(old)
        if connection.spent.client != client:
            connection.spent = Spent(client)
        connection.client = client
        connection.raw_client = client.to_bytes(16, "little")
        connection.user_id = credential.user_id
        connection.credential = credential
        connection.session = session
        connection.enter(Phase.BOUND)
        assert connection.spent.client == client, "spent numbers are those of its client"
        self._by_client[client] = connection
        self._addresses.pop(client, None)
        self._addresses[client] = connection.address
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        assert len(self._addresses) <= ADDRESSES_MAX, "addresses are bounded"
        assert len(self._by_client) <= len(self.by_number), "a session has a connection"

    def address_of(self, client: int) -> str:
        """Return where a client was last seen; empty if it never logged in here, or long ago."""
        return self._addresses.get(client, "")

    def unbind(self, connection: Connection) -> None:
        """Take the session from a connection."""
        assert self._by_client[connection.client] is connection, "a client has one connection"
        del self._by_client[connection.client]
        self._unbind(connection)

    @staticmethod
    def _unbind(connection: Connection) -> None:
        assert connection.phase is Phase.BOUND, "only a session that is held is taken"
        connection.client = connection.session = 0
        connection.raw_client = _NO_CLIENT
        connection.user_id = NO_USER
        connection.credential = None
        connection.enter(Phase.FREE)

    def check(self, now: int) -> None:
        """Assert that clients and their connections find each other."""
        for client, connection in self._by_client.items():
            assert connection.client == client, "a client is found by its id"
            assert self.by_number.get(connection.number) is connection, "it is still there"
            assert self._addresses.get(client, connection.address) == connection.address, (
                "a client is where it logged in last"
            )
        is_all_shown = len(self._addresses) < ADDRESSES_MAX
        for number, connection in self.by_number.items():
            assert connection.number == number, "a connection is found by its number"
        for connection in self.all():
            client = connection.client
            assert connection.heard <= now, "nobody was heard in the future"
            assert (client == 0) == (connection.session == 0), "an id comes with its session"
            assert connection.is_bound == (connection.session > 0), "its phase is that of a session"
            assert connection.is_bound == (connection.user_id != NO_USER), (
                "a session is that of a user"
            )
            assert connection.is_bound == (client in self._by_client), "a session has one place"
            assert int.from_bytes(connection.raw_client, "little") == client, "one id in two forms"
            has_credential = connection.credential is not None
            assert connection.is_bound == has_credential, "a session rests on a credential"
            assert 0 < connection.short_id <= _SHORT_ID_MAX, "it can be asked for"
            connection.spent.check()
            if connection.is_bound:
                assert connection.credential is not None
                assert connection.credential.user_id == connection.user_id, (
                    "a session is that of the user whose login opened it"
                )
                assert connection.credential.created_op < connection.session, (
                    "a session begins after its user"
                )
                assert self._by_client[client] is connection, "a client has one connection"
                assert connection.spent.client == client, "numbers are those of its client"
                is_shown = self._addresses.get(client) == connection.address
                assert is_shown or not is_all_shown, "where a client is connected is known"
        assert self.guests.keys() <= self.by_number.keys(), "a guest can be answered"
        bound = [each for each in self.all() if each.is_bound]
        assert len(bound) == len(self._by_client), "a client has one connection"
        sessions = dict.fromkeys(each.session for each in bound)
        assert len(sessions) == len(bound), "an op opens one session"
        shown = {each.short_id: None for each in self.all()}
        assert len(shown) == len(self), "each is shown under a number of its own"
        assert len(self._addresses) <= ADDRESSES_MAX, "addresses are bounded"

    def all(self) -> Iterable[Connection]:
        """Return all but guests, oldest first."""
        if not self.guests:
            return self.by_number.values()
        return [each for number, each in self.by_number.items() if number not in self.guests]

    def by_short_id(self, short_id: int) -> Connection | None:
        """Return the connection that `get clients` shows under a number."""
        for connection in self.all():
            if connection.short_id == short_id:
                return connection
        return None
