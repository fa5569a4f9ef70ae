"""A node with things in it and somebody at every level, who asks over a socket of its own."""

import itertools
from functools import cached_property
from typing import Any, Self
from uuid import uuid4

from headrace.wire.commands.groups import CREATE_GROUP, GET_GROUP, CreateGroup, GetGroup
from headrace.wire.commands.streams import CREATE_STREAM, GET_STREAM, CreateStream, GetStream
from headrace.wire.commands.table import AnyCommand
from headrace.wire.commands.tokens import CREATE_TOKEN, CreateToken
from headrace.wire.commands.topics import CREATE_TOPIC, GET_TOPIC, CreateTopic, GetTopic
from headrace.wire.commands.users import (
    CREATE_USER,
    GET_USER,
    UPDATE_PERMISSIONS,
    CreateUser,
    GetUser,
    UpdatePermissions,
)
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.permissions import Permissions
from tests.e2e.raw import RawClient
from tests.known_secrets import make_password
from tests.node import SHARDS, Node
from tests.security.levels import LEVELS, NO_LOGIN, ROOT, Level

STREAM, TOPIC, GROUP = "shop", "orders", "billing"
OTHER_STREAM, OTHER_TOPIC = "bank", "parcels"
VICTIM = "victim"  # a user to whom things are done

DONE = "done"


def ask(client: RawClient, command: AnyCommand, request: Any) -> str:
    """Send a request; say in two words how it was answered."""
    try:
        if command.operation == Operation.REGISTER:
            _register(client, command, request)
        else:
            client.call(command, request)
    except RefusedError as error:
        return f"refused {error.code.name}"
    except EvictedError as error:
        return f"evicted {'' if error.reason is None else error.reason.name}"
    return DONE


def _register(client: RawClient, command: AnyCommand, request: Any) -> None:
    """Send a login as it must travel, without session and number; keep those that there are."""
    kept = client.session, client.request
    client.session = client.request = 0
    client.call(command, request)
    client.session, client.request = kept


class House:
    """One node, its root, and whoever else has logged in."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._names = itertools.count()
        if SHARDS > 1:
            self.connect().close()  # On shard 0. Root, who asks most, is on another one.
        self.root = self.connect()
        self.root.login()
        self._clients = {ROOT: self.root}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def connect(self) -> RawClient:
        """Give a client that has not logged in; whoever asks closes it."""
        return RawClient(self.node.tcp, uuid4().int)

    @cached_property
    def token(self) -> str:
        """A token of the root user."""
        return self.root.call(CREATE_TOKEN, CreateToken("door", 0)).token

    def log_in(self, username: str) -> RawClient:
        """Give a client of a user with the password that the tests gave it."""
        client = self.connect()
        client.login(username=username, password=make_password(username))
        return client

    def new_name(self, of: str) -> str:
        """Give a name that nothing has yet."""
        return f"{of}-{next(self._names)}"

    def add_user(self, username: str, permissions: Permissions | None = None) -> int:
        """Create a user; give its number."""
        made = CreateUser(
            username=username,
            password=make_password(username),
            status=UserStatus.ACTIVE,
            permissions=permissions,
        )
        return self.root.call(CREATE_USER, made).user.id

    def client_at(self, level: Level) -> RawClient:
        """Give the client of a level; without a login it is a new one, which claims a session."""
        if level is NO_LOGIN:
            client = self.connect()
            client.session = self.root.session
            return client
        if level not in self._clients:
            self._clients[level] = self.log_in(level.username)
        return self._clients[level]

    def leave(self, level: Level) -> None:
        """Close the client of a level: it has logged out."""
        self._clients.pop(level).close()
        if level is ROOT:
            self.root = self._clients[ROOT] = self.connect()
            self.root.login()

    def furnish(self) -> None:
        """Put back what the last request removed, with the permissions that went with it."""
        root = self.root
        is_new = root.call(GET_STREAM, GetStream(STREAM)) is None
        if is_new:
            root.call(CREATE_STREAM, CreateStream(STREAM))
        if root.call(GET_TOPIC, GetTopic(STREAM, TOPIC)) is None:
            is_new = True
            root.call(CREATE_TOPIC, CreateTopic(STREAM, 2, TOPIC))
        if root.call(GET_TOPIC, GetTopic(STREAM, OTHER_TOPIC)) is None:
            root.call(CREATE_TOPIC, CreateTopic(STREAM, 2, OTHER_TOPIC))
        if root.call(GET_GROUP, GetGroup(STREAM, TOPIC, GROUP)) is None:
            root.call(CREATE_GROUP, CreateGroup(STREAM, TOPIC, GROUP))
        if root.call(GET_USER, GetUser(VICTIM)) is None:
            self.add_user(VICTIM)
        if is_new:
            self._grant()

    def _grant(self) -> None:
        for level in LEVELS:
            if level.permissions is not None:
                given = UpdatePermissions(level.username, level.permissions)
                self.root.call(UPDATE_PERMISSIONS, given)


def make_house(node: Node) -> House:
    """Give a house with all its users, and with a stream and a topic that nobody asks for."""
    house = House(node)
    for level in LEVELS:
        if level not in (NO_LOGIN, ROOT):
            house.add_user(level.username)
    house.root.call(CREATE_STREAM, CreateStream(STREAM))
    house.root.call(CREATE_STREAM, CreateStream(OTHER_STREAM))
    house.furnish()
    return house
