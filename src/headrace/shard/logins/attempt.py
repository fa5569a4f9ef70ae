"""One login that is under way, and how far it is.

```
BEGUN     -> VERIFYING  the credential hasher compares the password
          -> ORDERED    a token was found: the metadata group is asked for a session
          -> OVER       refused, or a session that the client has already is used
VERIFYING -> ORDERED    the password, or the token in its place, is right
          -> OVER       as above, or nobody waits for it any more
ORDERED   -> OVER       the group has answered, or nobody waits for it any more
```

A connection has one login at a time. What a login rests on stays here until its session is there:
a connection rests on nothing else than what its own session was opened with.
"""

from collections.abc import Mapping
from enum import Enum, auto

from headrace.shard.front.credential import Credential
from headrace.shard.logins.lockout import Origin
from headrace.wire.commands.session import Register
from headrace.wire.requests import RequestHeader

NO_TICKET = 0


class Phase(Enum):
    """How far a login is."""

    BEGUN = auto()  # it has asked nobody yet
    VERIFYING = auto()  # it waits for the credential hasher
    ORDERED = auto()  # it waits for the metadata group
    OVER = auto()  # it is answered, or nobody waits for it


_FOLLOWING: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.BEGUN: (Phase.VERIFYING, Phase.ORDERED, Phase.OVER),
    Phase.VERIFYING: (Phase.ORDERED, Phase.OVER),
    Phase.ORDERED: (Phase.OVER,),
    Phase.OVER: (),
}


class Attempt:
    """A login of one connection."""

    __slots__ = (
        "asked_hash",
        "connection",
        "credential",
        "header",
        "is_current",
        "origin",
        "phase",
        "request",
        "ticket",
    )

    def __init__(self, connection: int, header: RequestHeader, request: Register) -> None:
        self.connection = connection
        self.header = header
        self.request = request
        self.phase = Phase.BEGUN
        self.ticket = NO_TICKET  # by which it waits, for the hasher and then for the group
        self.origin: Origin | None = None  # of a login by password
        self.credential: Credential | None = None  # nothing if there is no such user
        self.asked_hash: str | None = None  # the one that the credential hasher compares with
        self.is_current = False  # whether this node knew the users when the hasher was asked

    def enter(self, phase: Phase) -> None:
        """Go on to a phase."""
        assert phase in _FOLLOWING[self.phase], (self.phase, phase)
        self.phase = phase

    def verify(self, ticket: int, origin: Origin, credential: Credential | None) -> None:
        """Wait for the credential hasher, which compares with the hash of this credential."""
        assert self.ticket < ticket, "a login waits for the hasher once"
        self.enter(Phase.VERIFYING)
        self.ticket = ticket
        self.origin = origin
        self.credential = credential
        self.asked_hash = None if credential is None else credential.password_hash

    def order(self, ticket: int, credential: Credential) -> None:
        """Wait for the metadata group, by the same ticket if the login has one."""
        assert self.ticket in (NO_TICKET, ticket), "a login keeps its deadline"
        self.enter(Phase.ORDERED)
        self.ticket = ticket
        self.credential = credential

    def end(self) -> None:
        """Be over, in whatever phase it is; a login may end twice."""
        if self.phase is not Phase.OVER:
            self.enter(Phase.OVER)

    def check(self) -> None:
        """Assert that what is known of a login is what its phase needs."""
        has_ticket = self.ticket > NO_TICKET
        assert has_ticket or self.phase in (Phase.BEGUN, Phase.OVER), "who waits has a ticket"
        assert self.phase is not Phase.BEGUN, "a login that is left alone waits for somebody"
        if self.phase is Phase.ORDERED:
            assert self.credential is not None
        assert self.asked_hash is None or self.origin is not None, "a password comes from somewhere"
        if self.origin is not None:
            login = self.request.password
            assert login is not None
            assert login.username == self.origin.username, "failures count for the name given"
