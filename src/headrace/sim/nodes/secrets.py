"""The credential hasher, simulated: hashes that anybody can undo, and tokens without chance."""

from headrace.base.secret import Secret
from headrace.ports.credentials import (
    HashPassword,
    MintToken,
    PasswordHashed,
    PasswordVerified,
    TokenMinted,
    VerifyPassword,
)

SecretEffect = VerifyPassword | HashPassword | MintToken
SecretEvent = PasswordVerified | PasswordHashed | TokenMinted


def hash_of(password: bytes) -> str:
    """Return what is stored for a password."""
    return f"hash of {password.decode()}"


def answer(effect: SecretEffect) -> SecretEvent:
    """Return what the credential hasher answers."""
    match effect:
        case VerifyPassword():
            is_right = effect.password_hash == hash_of(effect.password)
            return PasswordVerified(effect.token, is_right)
        case HashPassword():
            return PasswordHashed(effect.token, hash_of(effect.password))
        case MintToken():
            return TokenMinted(effect.token, Secret(b"token-%d" % effect.token))
