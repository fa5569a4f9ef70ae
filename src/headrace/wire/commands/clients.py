"""The connected clients."""

import msgspec

from headrace.wire.codec import (
    NOTHING,
    TEXT,
    U8,
    U32,
    Enumerated,
    Headed,
    Maybe,
    Record,
    Repeated,
)
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation, Transport

NOT_LOGGED_IN = 0xFFFF_FFFF


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A connection; its id is a small number, not the client id of its session."""

    client_id: int
    user_id: int  # NOT_LOGGED_IN before login
    transport: Transport
    address: str
    groups_count: int


class Membership(msgspec.Struct, frozen=True):
    """A consumer group that a client belongs to."""

    stream_id: int
    topic_id: int
    group_id: int


class ClientDetails(msgspec.Struct, frozen=True):
    """A connection with its groups."""

    client: Client
    groups: tuple[Membership, ...]


_CLIENT = Record(
    Client,
    client_id=U32,
    user_id=U32,
    transport=Enumerated(U8, Transport),
    address=TEXT,
    groups_count=U32,
)
_MEMBERSHIP = Record(Membership, stream_id=U32, topic_id=U32, group_id=U32)


_CLIENT_DETAILS = Headed(ClientDetails, _CLIENT, lambda client: client.groups_count, _MEMBERSHIP)


class GetClient(msgspec.Struct, frozen=True):
    """Asks for one connection."""

    client_id: int


GET_ME = Command(20, "get me", Operation.NON_REPLICATED, NOTHING, _CLIENT_DETAILS)
GET_CLIENT = Command(
    21,
    "get client",
    Operation.NON_REPLICATED,
    Record(GetClient, client_id=U32),
    Maybe(_CLIENT_DETAILS),
)
GET_CLIENTS = Command(22, "get clients", Operation.NON_REPLICATED, NOTHING, Repeated(_CLIENT))

COMMANDS = (GET_ME, GET_CLIENT, GET_CLIENTS)
