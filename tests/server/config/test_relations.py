"""Every rule between keys: kept by the defaults, and broken by what it forbids."""

from pathlib import Path

import pytest

from headrace.server.config.load import ConfigError, Profile, load_config
from headrace.server.config.relations import RELATIONS
from headrace.server.config.sections import SETTINGS

GOOD_PASSWORD = "correct horse battery"
PLAINTEXT = {"tls.allow_plaintext": "true"}

# What breaks each rule and nothing else, by the first of its keys and a word of its sentence.
BREACHES: list[tuple[str, str, dict[str, str], Profile]] = [
    ("tcp.enabled", "nobody", {"tcp.enabled": "false", "http.enabled": "false"}, "serve"),
    ("http.address", "another", {"http.address": "127.0.0.1:8090"}, "serve"),
    ("tcp.address", "loopback", {"tcp.address": "0.0.0.0:1"}, "dev"),
    ("http.address", "loopback", {"http.address": "[::]:1"}, "dev"),
    ("tcp.address", "without TLS", {"tcp.address": "0.0.0.0:1"}, "serve"),
    ("http.address", "without TLS", {"http.address": "[::]:1"}, "serve"),
    (
        "root.password",
        "everybody knows",
        {
            "root.password": "iggy",
            "http.address": "192.0.2.1:1",
            "tls.allow_plaintext": "true",
        },
        "serve",
    ),
    ("root.password", "password_min", {"root.password": "elevenchars"}, "serve"),
    (
        "root.password",
        "another than root.username",
        {"root.username": "a-long-user-name", "root.password": "a-long-user-name"},
        "serve",
    ),
    (
        "tcp.frame_bytes_max_before_login",
        "at most",
        {"tcp.frame_bytes_max": "1 MiB", "tcp.frame_bytes_max_before_login": "2 MiB"},
        "serve",
    ),
    ("tcp.connections_per_address_max", "at most", {"tcp.connections_max": "999"}, "serve"),
    (
        "tcp.unauthenticated_max",
        "at most",
        {"tcp.connections_max": "400", "tcp.connections_per_address_max": "400"},
        "serve",
    ),
    ("tcp.handshake_timeout", "at most", {"tcp.handshake_timeout": "31 s"}, "serve"),
    ("tcp.write_buffer_bytes_pause", "at most", {"tcp.write_buffer_bytes_pause": "1 GiB"}, "serve"),
    ("tcp.write_buffer_bytes_max", "at least", {"tcp.write_buffer_bytes_max": "1 MiB"}, "serve"),
    ("journal.bytes_max", "4 x", {"journal.bytes_max": "255 MiB"}, "serve"),
    ("journal.files", "each file", {"journal.files": "5"}, "serve"),
    (
        "metadata_journal.files",
        "each file",
        {"metadata_journal.bytes_max": "4 MiB", "metadata_journal.files": "5"},
        "serve",
    ),
    ("segments.receive_bytes_max", "2 x", {"segments.receive_bytes_max": "127 MiB"}, "serve"),
    ("segments.tail_bytes_max", "2 x", {"segments.tail_bytes_max": "127 MiB"}, "serve"),
    ("segments.piece_bytes", "at most", {"segments.segment_size": "1 MiB"}, "serve"),
    ("security.argon2_memory", "64 MiB", {"security.hashes_at_once": "4"}, "serve"),
    (
        "security.argon2_memory",
        "8 KiB",
        {"security.argon2_memory": "8 KiB", "security.argon2_parallelism": "2"},
        "serve",
    ),
    (
        "audit.file",
        "outside server.data_dir",
        {"server.data_dir": "data", "audit.file": "data/logs/audit.jsonl"},
        "serve",
    ),
    ("cluster.heartbeat_timeout", "4 x", {"cluster.heartbeat_interval": "2 s"}, "serve"),
    (
        "cluster.view_change_status_timeout",
        "4 x",
        {"cluster.view_change_retransmit_interval": "2 s"},
        "serve",
    ),
]
IN_COMPANY = "journal.bytes_max"  # a journal that is too small has too many files, too


@pytest.mark.parametrize(("path", "word", "flags", "profile"), BREACHES)
def test_each_breach_is_told(path: str, word: str, flags: dict[str, str], profile: Profile) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, flags, profile)
    found = [str(each) for each in caught.value.problems]
    assert any(each.startswith(f"{path} = ") and word in each for each in found), found
    assert len(found) == 1 or path == IN_COMPANY, found


def test_every_rule_has_its_breach() -> None:
    assert len(BREACHES) == len(RELATIONS)
    for relation, (path, word, _, _) in zip(RELATIONS, BREACHES, strict=True):
        assert relation.paths[0] == path
        assert word in relation.rule
        assert all(each in SETTINGS for each in relation.paths)


@pytest.mark.parametrize(
    ("flags", "profile"),
    [
        ({}, "serve"),
        ({}, "dev"),
        (PLAINTEXT | {"tcp.address": "0.0.0.0:8090"}, "serve"),
        (PLAINTEXT | {"tcp.address": "0.0.0.0:8090", "root.password": GOOD_PASSWORD}, "serve"),
        (PLAINTEXT | {"tcp.address": "[::]:1", "http.address": "node.example.org:2"}, "serve"),
        (PLAINTEXT, "serve"),
        ({"tcp.address": "localhost:1", "http.address": "127.9.9.9:2"}, "serve"),
        ({"tcp.address": "[::1]:1", "http.enabled": "false"}, "serve"),
        ({"http.address": "0.0.0.0:1", "http.enabled": "false"}, "serve"),
        ({"root.password": "iggy"}, "serve"),
        ({"tcp.address": "127.0.0.1:0", "http.address": "127.0.0.1:0"}, "serve"),
        ({"tcp.address": "0.0.0.0:1", "tcp.enabled": "false"}, "dev"),
        ({"root.password": "abc"}, "dev"),
        ({"journal.bytes_max": "4 MiB", "tcp.frame_bytes_max": "1 MiB"}, "serve"),
    ],
)
def test_what_is_fine(flags: dict[str, str], profile: Profile) -> None:
    load_config(None, {}, flags, profile)


def test_a_breach_names_value_origin_and_the_other_key() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"HEADRACE_JOURNAL_BYTES_MAX": "128 MiB"}, {}, "serve")
    assert str(caught.value.problems[0]) == (
        "journal.bytes_max = 128 MiB (environment HEADRACE_JOURNAL_BYTES_MAX): must be at least "
        "4 x tcp.frame_bytes_max (tcp.frame_bytes_max = 64 MiB)"
    )


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "192.0.2.1", "node.example.org", "localhost.a"]
)
def test_plaintext_off_loopback_is_refused_with_what_to_do(host: str) -> None:
    environment = {"HEADRACE_HTTP_ADDRESS": f"{host}:2"}
    with pytest.raises(ConfigError) as caught:
        load_config(None, environment, {"tcp.address": f"{host}:1"}, "serve")
    rule = (
        "must be on loopback without TLS, or tls.allow_plaintext must be true (flag "
        "--allow-plaintext): passwords and messages travel in clear (tls.allow_plaintext = false)"
    )
    assert [str(each) for each in caught.value.problems] == [
        f"tcp.address = {host}:1 (flag --tcp): {rule}",
        f"http.address = {host}:2 (environment HEADRACE_HTTP_ADDRESS): {rule}",
    ]


def test_plaintext_may_be_allowed_by_file_variable_and_flag(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[tcp]\naddress = "0.0.0.0:1"\n[tls]\nallow_plaintext = true\n')
    by_file = load_config(file, {}, {}, "serve")
    listen = {"tcp.address": "0.0.0.0:1"}
    by_variable = load_config(None, {"HEADRACE_TLS_ALLOW_PLAINTEXT": "true"}, listen, "serve")
    by_flag = load_config(None, {}, PLAINTEXT | listen, "serve")
    assert [each.origin("tls.allow_plaintext") for each in (by_file, by_variable, by_flag)] == [
        f"file {file}",
        "environment HEADRACE_TLS_ALLOW_PLAINTEXT",
        "flag --allow-plaintext",
    ]
    with pytest.raises(ConfigError, match=r"without TLS"):
        load_config(file, {"HEADRACE_TLS_ALLOW_PLAINTEXT": "false"}, {}, "serve")
