"""The configuration as a whole: who wins, what is refused, and how that is said."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from headrace.base.endpoints import Endpoint
from headrace.base.limits import GIB, MIB
from headrace.base.secret import Secret
from headrace.server.config.load import ConfigError, Profile, load_config
from headrace.server.config.sections import SETTINGS, TICK, ServerConfig
from headrace.storage.config import StoreConfig, file_bytes_of
from headrace.vsr.timeouts import Timeouts
from headrace.wire.topic_options import UNLIMITED


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    profile: Profile = "serve",
) -> ServerConfig:
    return load_config(file, environment or {}, flags or {}, profile)


def problems(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    profile: Profile = "serve",
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, environment, flags, profile)
    assert str(caught.value).splitlines() == [str(each) for each in caught.value.problems]
    return [str(each) for each in caught.value.problems]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.touch(mode=0o600)
    return path


def test_defaults_of_serve_and_dev() -> None:
    serve, dev = load(), load(profile="dev")
    assert serve.tcp.address == Endpoint("127.0.0.1", 8090)
    assert serve.http.address == Endpoint("127.0.0.1", 3000)
    assert serve.journal.bytes_max == 256 * MIB == 4 * serve.tcp.frame_bytes_max
    assert serve.topics.message_expiry == serve.topics.max_topic_size == UNLIMITED
    assert (serve.topics.durability_minimum, dev.topics.durability_minimum) == (
        "persisted",
        "replicated",
    )
    assert (serve.security.password_min, dev.security.password_min) == (12, 3)
    assert (serve.root.password, dev.root.password) == (None, Secret(b"iggy"))
    assert (serve.profile, dev.profile) == ("serve", "dev")


def test_every_default_can_be_written_and_read_again() -> None:
    for path, declared in SETTINGS.items():
        for default in (declared.default, declared.setting.dev):
            if default is not None and not declared.setting.is_secret:
                kind = declared.setting.kind
                assert kind.read(kind.show(default)) == default, path


def test_every_key_can_be_given_in_each_way(file: Path) -> None:
    texts = {
        path: declared.setting.kind.show(declared.default)
        for path, declared in SETTINGS.items()
        if not declared.setting.is_secret
    }
    file.write_text(
        "".join(
            f"[{path.split('.')[0]}]\n" * (index == 0 or path.split(".")[0] != before)
            + f'{path.split(".")[1]} = "{text}"\n'
            for index, (before, (path, text)) in enumerate(
                zip(["", *(each.split(".")[0] for each in texts)], texts.items(), strict=False)
            )
        )
    )
    variables = {SETTINGS[path].variable: text for path, text in texts.items()}
    plain = load()
    for config in (load(file), load(environment=variables), load(flags=texts)):
        assert all(config.value(path) == plain.value(path) for path in SETTINGS)
        assert all(config.origin(path) != "default" for path in texts)


def test_flags_beat_the_environment_which_beats_the_file(file: Path) -> None:
    file.write_text(
        '[tcp]\naddress = "127.0.0.1:1"\nlogin_timeout = "11 s"\nconnections_max = 1001\n'
    )
    environment = {"HEADRACE_TCP_ADDRESS": "127.0.0.1:2", "HEADRACE_TCP_LOGIN_TIMEOUT": "12 s"}
    config = load(file, environment, {"tcp.address": "127.0.0.1:3"})
    assert config.tcp.address.port == 3
    assert config.tcp.login_timeout == 12_000_000
    assert config.tcp.connections_max == 1001
    assert config.origin("tcp.address") == "flag --tcp"
    assert config.origin("tcp.login_timeout") == "environment HEADRACE_TCP_LOGIN_TIMEOUT"
    assert config.origin("tcp.connections_max") == f"file {file}"
    assert config.origin("tcp.in_flight_max") == "default"


def test_all_problems_are_told_at_once(file: Path) -> None:
    file.write_text(
        '[tcp]\nadress = "x"\nconnections_max = 0\n[retention]\ninterval = "soon"\n'
        '[tpc]\naddress = "x"\n[journal]\nbytes_max = "5 GiB"\nfiles = 3\n'
    )
    found = problems(
        file,
        {"HEADRACE_SECURITY_PASSWORD_MIN": "2", "HEADRACE_TCP_ADRESS": "x"},
        {"server.shards": "4..2", "http.address": "here"},
    )
    assert found == [
        f"tcp.adress (file {file}): no such key; did you mean tcp.address?",
        f"tpc (file {file}): no such section; did you mean tcp?",
        "environment HEADRACE_TCP_ADRESS: no such key; did you mean HEADRACE_TCP_ADDRESS?",
        (
            'server.shards = "4..2" (flag --shards): the range 4..2 is inverted: it ends below 4; '
            "allowed 1 to 65534, all, auto, A..B, numa:auto, numa:nodes=0,1;cores=4;no_ht=true, "
            "or empty"
        ),
        f"tcp.connections_max = 0 (file {file}): allowed 1 to 1000000",
        (
            "http.address = \"here\" (flag --http): 'here' has no port: write HOST:PORT, such as "
            "127.0.0.1:8090 or [::1]:8090; allowed HOST:PORT, where port 0 picks a free one"
        ),
        f"journal.files = 3 (file {file}): allowed 4 to 64",
        (
            f"retention.interval = \"soon\" (file {file}): 'soon' is no duration: "
            "write a number and us, ms, s, min, h or days; allowed 1 s to 1 day"
        ),
        (
            'security.password_min = "2" (environment HEADRACE_SECURITY_PASSWORD_MIN): '
            "allowed 3 to 100"
        ),
    ]


def test_a_relation_is_not_judged_by_a_value_that_nobody_asked_for() -> None:
    found = problems(flags={"tcp.frame_bytes_max": "1 B", "journal.bytes_max": "8 MiB"})
    assert [each.split(" ")[0] for each in found] == ["tcp.frame_bytes_max"]


def test_a_bad_value_that_is_overruled_does_no_harm(file: Path) -> None:
    file.write_text("[tcp]\nconnections_max = 0\n")
    assert load(file, {"HEADRACE_TCP_CONNECTIONS_MAX": "2000"}).tcp.connections_max == 2000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "is not TOML"),
        ("[a]\n[a]\n", "is not TOML"),
        ("tcp = 1", "tcp (file {file}): is a section and holds keys, no value"),
        ("address = 1", "no such section; did you mean tcp.address?"),
        ("[tcp]\ndata_dir = 'x'", "tcp.data_dir (file {file}): no such key; did you mean server."),
        ("[server]\nzzzzzz = 1", "server.zzzzzz (file {file}): no such key"),
        ("[tcp.address]\nhost = 1", "tcp.address = {{'host': 1}} (file {file}): not a text"),
        ("[[tcp]]\n", "tcp (file {file}): is a section and holds keys, no value"),
        ("[tcp]\nlogin_timeout = 30", "tcp.login_timeout = 30 (file {file}): a number without"),
        ("[tcp]\nenabled = 1", "tcp.enabled = 1 (file {file}): allowed true or false"),
        ("[journal]\nfiles = true", "journal.files = True (file {file}): not a number"),
        ("[sessions]\nstale_factor = nan", "stale_factor = nan (file {file}): allowed 1 to 100"),
    ],
)
def test_files_that_are_wrong(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    (found,) = problems(file)
    assert words.format(file=file) in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert problems(tmp_path / "none") == [f"{tmp_path / 'none'}: No such file or directory"]
    assert problems(tmp_path) == [f"{tmp_path}: Is a directory"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert problems(pipe) == [f"{pipe}: is no file"]
    large = tmp_path / "large"
    large.write_bytes(b"#" * (MIB + 1))
    assert problems(large) == [f"{large}: is larger than {MIB} bytes"]
    latin = tmp_path / "latin"
    latin.write_bytes(b"# \xe9")
    assert problems(latin) == [f"{latin}: is not UTF-8 at byte 2"]
    deep = tmp_path / "deep"
    deep.write_text("[tcp]\naddress = " + "[" * 100_000)
    assert problems(deep) == [f"{deep}: is nested too deeply"]


def test_a_secret_in_a_file_that_everybody_reads(file: Path) -> None:
    file.write_text('[root]\npassword = "correct horse battery"\n')
    assert load(file).root.password == b"correct horse battery"
    file.chmod(0o640)
    assert load(file).root.password == b"correct horse battery"
    file.chmod(0o644)
    (found,) = problems(file)
    assert found == f"{file}: holds root.password and is readable for everybody: chmod 600 {file}"
    # Even where the environment overrules it: the secret lies open all the same.
    assert problems(file, {"HEADRACE_ROOT_PASSWORD": "another long one"}) == [found]


def test_a_file_without_a_secret_may_be_open(file: Path) -> None:
    file.write_text("[tcp]\nin_flight_max = 7\n")
    file.chmod(0o644)
    assert load(file).tcp.in_flight_max == 7


def test_secrets_are_masked(file: Path) -> None:
    secret = "swordfish-swordfish"
    config = load(environment={"HEADRACE_ROOT_PASSWORD": secret})
    assert config.root.password == secret.encode()
    assert secret not in repr(config)
    assert secret not in f"{config.root.password} {config}"
    assert config.show("root.password") == "..."
    file.write_text(f'[root]\npassword = "{secret * 20}"\n')
    (found,) = problems(file)
    assert found == f"root.password = ... (file {file}): allowed 3 to 100 bytes of text"
    (found,) = problems(environment={"HEADRACE_ROOT_PASSWORD": "short-one"})
    assert "short-one" not in found


def test_the_spelling_of_iggy() -> None:
    older = {"IGGY_ROOT_USERNAME": "anna", "IGGY_ROOT_PASSWORD": "anna's long secret"}
    config = load(environment=older)
    assert (config.root.username, config.root.password) == ("anna", b"anna's long secret")
    assert config.origin("root.username") == "environment IGGY_ROOT_USERNAME"
    assert load(environment=older | {"HEADRACE_ROOT_USERNAME": "bert"}).root.username == "bert"


def test_variables_that_are_not_ours() -> None:
    load(
        environment={
            "HEADRACE_ADDRESS": "x",
            "HEADRACE_USERNAME": "x",
            "HEADRACE_PASSWORD": "x",
            "HEADRACE_TOKEN": "x",
            "HEADRACE_HOME": "x",
            "_HEADRACE_COMPLETE": "x",
            "HEADRACE_SERVICE_HOST": "x",
            "HEADRACE_SERVICE_PORT_TCP": "x",
            "HEADRACE_PORT_8090_TCP_ADDR": "x",
            "HEADRACE": "x",
            "IGGY_TCP_ADDRESS": "x",
        }
    )
    (found,) = problems(environment={"HEADRACE_QUUX": "x"})
    assert found == "environment HEADRACE_QUUX: no such key"


def test_long_and_strange_values_stay_on_one_short_line() -> None:
    (found,) = problems(flags={"server.name": "a\n" * 500})
    assert "\n" not in found
    assert len(found) < 250


def test_sizes_and_durations_as_people_write_them() -> None:
    config = load(
        environment={
            "HEADRACE_JOURNAL_BYTES_MAX": "1.5 GiB",
            "HEADRACE_SEGMENTS_TAIL_BYTES_MAX": "1073741824",
            "HEADRACE_TOPICS_MESSAGE_EXPIRY": "7 days",
            "HEADRACE_TOPICS_MAX_TOPIC_SIZE": "unlimited",
            "HEADRACE_RETENTION_INTERVAL": "1 min 30 s",
        }
    )
    assert config.journal.bytes_max == 3 * GIB // 2
    assert config.segments.tail_bytes_max == GIB
    assert config.topics.message_expiry == 7 * 86_400 * 1_000_000
    assert config.topics.max_topic_size == UNLIMITED
    assert config.show("retention.interval") == "90 s"
    assert config.show("journal.bytes_max") == "1536 MiB"


def test_a_journal_file_is_what_storage_makes_of_it() -> None:
    config = load(flags={"metadata_journal.files": "7"})
    for journal in (config.journal, config.metadata_journal):
        store = StoreConfig(
            cluster=0,
            replica=0,
            replica_count=1,
            journal_bytes_max=journal.bytes_max,
            journal_files=journal.files,
            record_bytes_max=journal.file_bytes,
            boot_identity=0,
        )
        assert file_bytes_of(store) == journal.file_bytes


def test_the_waits_of_a_cluster_are_those_that_consensus_has_by_itself() -> None:
    cluster = load().cluster
    for field in msgspec.structs.fields(Timeouts):
        waited = getattr(cluster, field.name)
        assert (waited if field.name.endswith("_max") else waited // TICK) == field.default


@pytest.mark.parametrize("value", ["0 s", "off", "never", "disabled", "31 s", "5 ms", "1"])
def test_a_reconciler_cannot_be_switched_off(value: str) -> None:
    """RC-2: at least every 30 s partitions are compared."""
    environment = {"HEADRACE_SERVER_RECONCILE_INTERVAL": value}
    [problem] = problems(environment=environment)
    assert "server.reconcile_interval" in problem
    assert "10 ms to 30 s" in problem
    assert load().server.reconcile_interval == 1_000_000
