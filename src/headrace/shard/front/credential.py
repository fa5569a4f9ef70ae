"""What a session rests on, and whether that still holds (SE-4, SE-5).

A session ends when what it was opened with is no longer what the metadata says: the user is gone,
inactive, or another one of the same number; its password was changed; the token was revoked or has
expired. Permissions are no part of it: they are asked for with every request.
"""

import msgspec

from headrace.metadata import resolve
from headrace.metadata.state import State, Token, User
from headrace.wire.numbers import UserStatus


class Credential(msgspec.Struct, frozen=True):
    """A user as it was when its password or its token was verified."""

    user_id: int
    created_op: int
    password_hash: str
    token_hash: str | None = None

    def __repr__(self) -> str:
        return f"Credential({self.user_id}, {self.created_op}, ...)"


def credential_of(user: User, token: Token | None = None) -> Credential:
    """Return what a login by the password, or by a token, rests on."""
    token_hash = None if token is None else token.token_hash
    assert token is None or user.tokens[token.name] is token, "a token is one of its user's"
    return Credential(user.id, user.created_op, user.password_hash, token_hash)


def holds(credential: Credential, state: State, now: int) -> bool:
    """Whether a session may go on; `now` is in microseconds."""
    user = state.users.find(credential.user_id)
    if user is None or user.created_op != credential.created_op:
        return False
    if user.status != UserStatus.ACTIVE or user.password_hash != credential.password_hash:
        return False
    if credential.token_hash is None:
        return True
    found = resolve.token(state, credential.token_hash)
    return found is not None and found[0] is user and not found[1].is_expired(now)
