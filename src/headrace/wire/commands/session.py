"""Login and logout.

A login is the operation Register. Its body begins with the client's version and then has one of two
shapes, by password or by token; which one does not travel, so a server tries both.
"""

from typing import TypeVar

import msgspec

from headrace.wire.codec import (
    NAME,
    NOTHING,
    SECRET,
    TEXT,
    U32,
    U64,
    Data,
    Reader,
    Record,
    SecretBytes,
)
from headrace.wire.commands.command import Command
from headrace.wire.errors import DecodeError
from headrace.wire.numbers import Operation

_S = TypeVar("_S", bound=msgspec.Struct)

# Logins of an older protocol, answered with an eviction for a malformed login.
LEGACY_LOGIN_CODES = (38, 44)


class ClientVersion(msgspec.Struct, frozen=True):
    """The version of a client, before its credentials; it is checked first."""

    protocol_version: int
    sdk_name: str
    sdk_version: str


class PasswordLogin(msgspec.Struct, frozen=True):
    """A user name and its password."""

    username: str
    password: bytes
    context: str = ""


class TokenLogin(msgspec.Struct, frozen=True):
    """A personal access token."""

    token: bytes
    context: str = ""


class Register(msgspec.Struct, frozen=True):
    """A login as it travels: its shape is not transmitted, so it holds both readings.

    A body may fit both; a server tries the password first.
    """

    version: ClientVersion
    password: PasswordLogin | None = None
    token: TokenLogin | None = None


class Registered(msgspec.Struct, frozen=True):
    """The session: the number that fences every later request."""

    user_id: int
    session: int
    server_protocol_version: int
    server_version: str


class _Context:
    """Text that may be absent."""

    def read(self, reader: Reader) -> str:
        return TEXT.read(reader) if reader.remaining else ""

    def write(self, out: bytearray, value: str) -> None:
        TEXT.write(out, value)


_VERSION = Record(ClientVersion, protocol_version=U32, sdk_name=NAME, sdk_version=NAME)
_PASSWORD_LOGIN = Record(PasswordLogin, username=NAME, password=SECRET, context=_Context())
_TOKEN_LOGIN = Record(TokenLogin, token=SecretBytes(bytes_min=1), context=_Context())


class _RegisterCodec:
    """The version, then each of the two shapes that fits the rest."""

    def read(self, reader: Reader) -> Register:
        version = _VERSION.read(reader)
        rest = reader.take_rest()
        password = _read_shape(_PASSWORD_LOGIN, rest)
        token = _read_shape(_TOKEN_LOGIN, rest)
        return Register(version, password, token)

    def write(self, out: bytearray, value: Register) -> None:
        if (value.password is None) == (value.token is None):
            raise ValueError("a login is by password or by token")
        _VERSION.write(out, value.version)
        if value.password is not None:
            _PASSWORD_LOGIN.write(out, value.password)
        if value.token is not None:
            _TOKEN_LOGIN.write(out, value.token)


def _read_shape(shape: Record[_S], rest: Data) -> _S | None:
    try:
        return shape.read(Reader(rest))
    except DecodeError:
        return None


_REGISTER = _RegisterCodec()
_REGISTERED = Record(
    Registered, user_id=U32, session=U64, server_protocol_version=U32, server_version=NAME
)

LOGIN_PASSWORD = Command(40, "login with password", Operation.REGISTER, _REGISTER, _REGISTERED)
LOGIN_TOKEN = Command(45, "login with token", Operation.REGISTER, _REGISTER, _REGISTERED)
LOGOUT = Command(39, "logout", Operation.LOGOUT, NOTHING, NOTHING)

COMMANDS = (LOGIN_PASSWORD, LOGIN_TOKEN, LOGOUT)
