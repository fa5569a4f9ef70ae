"""How the keys of a configuration relate to each other: all such rules, in one table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.base.limits import KIB, MIB
from headrace.server.config.sections import (
    DEFAULT_PASSWORD,
    DEFAULT_USERNAME,
    ServerConfig,
)

HASHES_BYTES_MAX = 64 * MIB  # the memory that a flood of logins may use
METADATA_RECORD_BYTES_MIN = MIB
_ARGON2_LANE_BYTES_MIN = 8 * KIB
_ENCRYPTED = (
    "on loopback without TLS, or tls.allow_plaintext must be true (flag --allow-plaintext): "
    "passwords and messages travel in clear"
)


@dataclass(frozen=True)
class Relation:
    """A rule about the first of some keys that depends on the others.

    `rule` continues the sentence "this key must be": it is shown in the error, and on the
    page of the guide.
    """

    paths: tuple[str, ...]
    rule: str
    holds: Callable[[ServerConfig], bool]


def broken_relations(config: ServerConfig) -> Iterator[Relation]:
    """Return the rules that a configuration breaks."""
    return (relation for relation in RELATIONS if not relation.holds(config))


def has_default_credentials(config: ServerConfig) -> bool:
    """Whether the root user has the well-known name and password."""
    return (config.root.username, config.root.password) == (DEFAULT_USERNAME, DEFAULT_PASSWORD)


def is_loopback_only(config: ServerConfig) -> bool:
    """Whether only this machine can connect."""
    return not open_addresses(config)


def open_addresses(config: ServerConfig) -> list[str]:
    """Return the keys of the addresses at which other machines can connect."""
    is_local = {"tcp.address": _is_local_tcp(config), "http.address": _is_local_http(config)}
    return [path for path in is_local if not is_local[path]]


def _is_local_tcp(config: ServerConfig) -> bool:
    return not config.tcp.enabled or config.tcp.address.is_loopback


def _is_local_http(config: ServerConfig) -> bool:
    return not config.http.enabled or config.http.address.is_loopback


def _is_long_enough(config: ServerConfig) -> bool:
    password = config.root.password
    if password is None or has_default_credentials(config):
        return True  # the default pair has its own rule
    return len(password) >= config.security.password_min


def _is_no_user_name(config: ServerConfig) -> bool:
    if has_default_credentials(config):
        return True
    return config.root.password != config.root.username.encode(errors="surrogateescape")


RELATIONS = (
    Relation(
        ("tcp.enabled", "http.enabled"),
        "true, or http.enabled must be: nobody could connect",
        lambda c: c.tcp.enabled or c.http.enabled,
    ),
    Relation(
        ("http.address", "tcp.address"),
        "another address than tcp.address",
        lambda c: (
            not (c.tcp.enabled and c.http.enabled)
            or c.http.address.port == 0
            or c.http.address != c.tcp.address
        ),
    ),
    Relation(
        ("tcp.address",),
        "on loopback under `headrace dev`; `headrace serve` takes other addresses",
        lambda c: c.profile != "dev" or _is_local_tcp(c),
    ),
    Relation(
        ("http.address",),
        "on loopback under `headrace dev`; `headrace serve` takes other addresses",
        lambda c: c.profile != "dev" or _is_local_http(c),
    ),
    # Under `dev` no key allows such an address (SE-8).
    Relation(
        ("tcp.address", "tls.allow_plaintext"),
        _ENCRYPTED,
        lambda c: c.profile == "dev" or c.tls.allow_plaintext or _is_local_tcp(c),
    ),
    Relation(
        ("http.address", "tls.allow_plaintext"),
        _ENCRYPTED,
        lambda c: c.profile == "dev" or c.tls.allow_plaintext or _is_local_http(c),
    ),
    Relation(
        ("root.password", "tcp.address", "http.address"),
        "another than the one everybody knows unless all addresses are on loopback; left out, a "
        "safe one is made",
        # Under `dev` the addresses themselves are refused.
        lambda c: c.profile == "dev" or not has_default_credentials(c) or is_loopback_only(c),
    ),
    Relation(
        ("root.password", "security.password_min"),
        "at least security.password_min long",
        _is_long_enough,
    ),
    Relation(("root.password", "root.username"), "another than root.username", _is_no_user_name),
    Relation(
        ("tcp.frame_bytes_max_before_login", "tcp.frame_bytes_max"),
        "at most tcp.frame_bytes_max",
        lambda c: c.tcp.frame_bytes_max_before_login <= c.tcp.frame_bytes_max,
    ),
    Relation(
        ("tcp.connections_per_address_max", "tcp.connections_max"),
        "at most tcp.connections_max",
        lambda c: c.tcp.connections_per_address_max <= c.tcp.connections_max,
    ),
    Relation(
        ("tcp.unauthenticated_max", "tcp.connections_max"),
        "at most tcp.connections_max",
        lambda c: c.tcp.unauthenticated_max <= c.tcp.connections_max,
    ),
    Relation(
        ("tcp.handshake_timeout", "tcp.login_timeout"),
        "at most tcp.login_timeout",
        lambda c: c.tcp.handshake_timeout <= c.tcp.login_timeout,
    ),
    Relation(
        ("tcp.write_buffer_bytes_pause", "tcp.write_buffer_bytes_max"),
        "at most tcp.write_buffer_bytes_max",
        lambda c: c.tcp.write_buffer_bytes_pause <= c.tcp.write_buffer_bytes_max,
    ),
    Relation(
        ("tcp.write_buffer_bytes_max", "tcp.frame_bytes_max"),
        "at least tcp.frame_bytes_max, or a large answer could never be sent",
        lambda c: c.tcp.write_buffer_bytes_max >= c.tcp.frame_bytes_max,
    ),
    Relation(
        ("journal.bytes_max", "tcp.frame_bytes_max"),
        "at least 4 x tcp.frame_bytes_max",
        lambda c: c.journal.bytes_max >= 4 * c.tcp.frame_bytes_max,
    ),
    Relation(
        ("journal.files", "journal.bytes_max", "tcp.frame_bytes_max"),
        "few enough that each file holds tcp.frame_bytes_max",
        lambda c: c.journal.file_bytes >= c.tcp.frame_bytes_max,
    ),
    Relation(
        ("metadata_journal.files", "metadata_journal.bytes_max"),
        "few enough that each file holds 1 MiB",
        lambda c: c.metadata_journal.file_bytes >= METADATA_RECORD_BYTES_MIN,
    ),
    Relation(
        ("segments.receive_bytes_max", "tcp.frame_bytes_max"),
        "at least 2 x tcp.frame_bytes_max",
        lambda c: c.segments.receive_bytes_max >= 2 * c.tcp.frame_bytes_max,
    ),
    Relation(
        ("segments.tail_bytes_max", "tcp.frame_bytes_max"),
        "at least 2 x tcp.frame_bytes_max",
        lambda c: c.segments.tail_bytes_max >= 2 * c.tcp.frame_bytes_max,
    ),
    Relation(
        ("segments.piece_bytes", "segments.segment_size"),
        "at most segments.segment_size",
        lambda c: c.segments.piece_bytes <= c.segments.segment_size,
    ),
    Relation(
        ("security.argon2_memory", "security.hashes_at_once"),
        "at most 64 MiB for all of security.hashes_at_once together",
        lambda c: c.security.argon2_memory * c.security.hashes_at_once <= HASHES_BYTES_MAX,
    ),
    Relation(
        ("security.argon2_memory", "security.argon2_parallelism"),
        "at least 8 KiB for each of security.argon2_parallelism",
        lambda c: (
            c.security.argon2_memory >= _ARGON2_LANE_BYTES_MIN * c.security.argon2_parallelism
        ),
    ),
    Relation(
        ("audit.file", "server.data_dir"),
        "outside server.data_dir: all files there are the node's own",
        lambda c: not c.audit.file.absolute().is_relative_to(c.server.data_dir.absolute()),
    ),
    Relation(
        ("cluster.heartbeat_timeout", "cluster.heartbeat_interval"),
        "at least 4 x cluster.heartbeat_interval",
        lambda c: c.cluster.heartbeat_timeout >= 4 * c.cluster.heartbeat_interval,
    ),
    Relation(
        ("cluster.view_change_status_timeout", "cluster.view_change_retransmit_interval"),
        "at least 4 x cluster.view_change_retransmit_interval",
        lambda c: (
            c.cluster.view_change_status_timeout >= 4 * c.cluster.view_change_retransmit_interval
        ),
    ),
)
