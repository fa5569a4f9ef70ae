"""Credentials outside the core: expensive hashes, and randomness.

Hashing a password takes long on purpose and so happens elsewhere, a few at a time; an answer comes
as an event, in any order. No secret is in a log, a trace or a `repr`.
"""

from typing import TypeAlias

import msgspec

from headrace.base.secret import Secret


class VerifyPassword(msgspec.Struct, frozen=True):
    """Compare a password with a stored hash; answered by `PasswordVerified`.

    Without a hash there is no such user: the answer is no, and costs the same.
    """

    token: int
    password: Secret
    password_hash: str | None


class HashPassword(msgspec.Struct, frozen=True):
    """Hash a new password with a fresh salt; answered by `PasswordHashed`."""

    token: int
    password: Secret


class MintToken(msgspec.Struct, frozen=True):
    """Draw a new access token of at least 256 bits; answered by `TokenMinted`."""

    token: int


class PasswordVerified(msgspec.Struct, frozen=True):
    """Whether it was the password; with a new hash if the stored one costs too little now."""

    token: int
    is_right: bool
    stronger_hash: str | None = None


class PasswordHashed(msgspec.Struct, frozen=True):
    """The hash as a PHC string."""

    token: int
    password_hash: str


class TokenMinted(msgspec.Struct, frozen=True):
    """The secret, sent to its user once; only its hash is stored."""

    token: int
    secret: Secret


class CredentialsBusy(msgspec.Struct, frozen=True):
    """Too much is waiting, or there was no memory: nothing was decided; it may be asked again."""

    token: int


CredentialEffect: TypeAlias = VerifyPassword | HashPassword | MintToken
CredentialEvent: TypeAlias = PasswordVerified | PasswordHashed | TokenMinted | CredentialsBusy
