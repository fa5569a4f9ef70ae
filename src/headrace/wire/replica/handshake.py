"""The handshake by which two replicas authenticate each other before the first frame.

    dialer                                   acceptor
      ReplicaHello      cluster, id, nonce  →
                       ←  nonce, mac, status   ReplicaChallenge
      ReplicaFinish     mac                 →

The lower replica id dials. A hello whose nonce is all zero asks for no authentication and is then
the whole handshake. Hashes are BLAKE2b (O6.4).
"""

import hashlib
from enum import IntEnum

import msgspec

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind

NONCE_BYTES = 32
MAC_BYTES = 32
NO_NONCE = bytes(NONCE_BYTES)
NO_EXPORTER = bytes(32)
SECRET_BYTES_MIN = 32

_KEY_PERSON = b"headrace mac key"
_MAC_TAG = b"headrace replica-auth v1"


class HandshakeStatus(IntEnum):
    """The answer of the acceptor; the last two are only logged, never sent."""

    OK = 0
    UNKNOWN_COMMAND = 1
    CLUSTER_MISMATCH = 2
    WRONG_DIRECTION = 3
    AUTHENTICATION_REQUIRED = 4
    MAC_MISMATCH = 5


class HandshakeHeader(Header, frozen=True):
    """All three frames; a hello has no mac, only a challenge has a status."""

    nonce: bytes = NO_NONCE
    mac: bytes = bytes(MAC_BYTES)
    status: int = 0


def _layout(kind: FrameKind) -> Layout[HandshakeHeader]:
    return Layout(
        kind,
        HandshakeHeader,
        reserved_zero=True,
        nonce=(128, NONCE_BYTES),
        mac=(160, MAC_BYTES),
        status=(192, 1),
    )


HELLO = _layout(FrameKind.REPLICA_HELLO)
CHALLENGE = _layout(FrameKind.REPLICA_CHALLENGE)
FINISH = _layout(FrameKind.REPLICA_FINISH)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one connection that both ends know and that a mac covers."""

    cluster: int
    dialer: int
    acceptor: int
    dialer_nonce: bytes
    acceptor_nonce: bytes
    exporter: bytes | None = None  # 32 bytes of the TLS session; none on plain TCP


def derive_key(secret: bytes) -> bytes:
    """Return the key of all macs, derived from the secret that the cluster shares.

    Raises:
        ValueError: The secret is too short.
    """
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(
            f"shared secret of {len(secret)} bytes, at least {SECRET_BYTES_MIN} wanted"
        )
    return hashlib.blake2b(secret, digest_size=32, person=_KEY_PERSON).digest()


def make_mac(key: bytes, link: Link, *, by_dialer: bool) -> bytes:
    """Return the proof that one end knows the secret, for this connection and direction only."""
    assert len(link.dialer_nonce) == len(link.acceptor_nonce) == NONCE_BYTES
    message = b"".join(
        (
            _MAC_TAG,
            link.cluster.to_bytes(16, "little"),
            bytes((link.dialer, link.acceptor)),
            link.dialer_nonce,
            link.acceptor_nonce,
            b"\0" if link.exporter is None else b"\1",
            NO_EXPORTER if link.exporter is None else link.exporter,
            b"\1" if by_dialer else b"\2",
        )
    )
    return hashlib.blake2b(message, digest_size=MAC_BYTES, key=key).digest()


def cluster_id(name: str) -> int:
    """Return the number that identifies the cluster in frames."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")
