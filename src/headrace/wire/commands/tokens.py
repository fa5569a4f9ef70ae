"""Personal access tokens of the user who asks."""

import msgspec

from headrace.wire.codec import NAME, NOTHING, U64, Record, Repeated
from headrace.wire.commands.command import Command
from headrace.wire.numbers import Operation

EXPIRY_NEVER = (1 << 64) - 1  # so does 0


class Token(msgspec.Struct, frozen=True):
    """A token as lists show it; an expiry of 0 means never."""

    name: str
    expires_at: int


class CreateToken(msgspec.Struct, frozen=True):
    """Creates a token with a lifetime in microseconds."""

    name: str
    expiry: int


class CreatedToken(msgspec.Struct, frozen=True):
    """The secret itself, sent once and never stored."""

    token: str


class DeleteToken(msgspec.Struct, frozen=True):
    """Revokes a token."""

    name: str


GET_TOKENS = Command(
    41,
    "get personal access tokens",
    Operation.NON_REPLICATED,
    NOTHING,
    Repeated(Record(Token, name=NAME, expires_at=U64)),
)
CREATE_TOKEN = Command(
    42,
    "create personal access token",
    Operation.CREATE_PERSONAL_ACCESS_TOKEN,
    Record(CreateToken, name=NAME, expiry=U64),
    Record(CreatedToken, token=NAME),
)
DELETE_TOKEN = Command(
    43,
    "delete personal access token",
    Operation.DELETE_PERSONAL_ACCESS_TOKEN,
    Record(DeleteToken, name=NAME),
    NOTHING,
)

COMMANDS = (GET_TOKENS, CREATE_TOKEN, DELETE_TOKEN)
