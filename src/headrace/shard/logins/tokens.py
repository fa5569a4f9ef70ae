"""How a personal access token is known without being stored."""

import hashlib


def hash_token(secret: bytes) -> str:
    """Return the hash by which a token is found: 64 hexadecimal characters.

    A token is drawn at random with 256 bits and more, so a plain hash cannot be guessed back.
    """
    found = hashlib.blake2b(secret, digest_size=32, person=b"headrace token").hexdigest()
    assert len(found) == 64, "two characters for each of 32 bytes"
    return found
