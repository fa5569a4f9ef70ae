"""What protects a node that is simply started: its first password, its files, its audit log."""

import json
import re
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.base.endpoints import Endpoint
from headrace.wire.commands import streams, tokens, topics, users
from headrace.wire.evictions import EvictedError
from headrace.wire.numbers import UserStatus
from tests.e2e.raw import RawClient
from tests.known_secrets import make_password
from tests.node import Node, NodeError, running_node
from tests.watched_nodes import hand_in

pytestmark = pytest.mark.slow

PASSWORD = re.compile(r"^root user iggy has the password (\S+) \(shown this once: keep it\)$", re.M)
ANNA = make_password("anna")
CHEAP = {"HEADRACE_SECURITY_ARGON2_TIME_COST": "1", "HEADRACE_SECURITY_ARGON2_MEMORY": "8 MiB"}


def audited(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def open_to_others(folder: Path) -> dict[str, str]:
    """Name what somebody else could look into."""
    return {
        str(path): oct(mode)
        for path in (folder, *folder.rglob("*"))
        if (mode := stat.S_IMODE(path.lstat().st_mode)) & 0o077
    }


@pytest.mark.parametrize("listen", [("--tcp", "0.0.0.0:0"), ("--http", "[::]:0")])
def test_a_door_to_other_machines_without_tls_stays_shut(
    listen: tuple[str, str], tmp_path: Path
) -> None:
    node = Node(tmp_path, profile="serve", arguments=listen)
    with pytest.raises(NodeError, match=r"tls\.allow_plaintext must be true"):
        node.start()
    assert " is ready" not in node.output()
    assert not node.data.exists()
    hand_in(node.output(), tmp_path)


def test_a_door_to_other_machines_is_opened_with_a_warning() -> None:
    """Two starts: 3 s, ten on a busy machine."""
    warning = "no TLS off loopback at tcp.address = 0.0.0.0:0: passwords and messages travel"
    listen = ("--tcp", "0.0.0.0:0", "--allow-plaintext")
    with running_node(profile="serve", arguments=listen) as node:
        (password,) = PASSWORD.findall(node.output())
        assert node.tcp.host == "0.0.0.0"
        with closing(RawClient(Endpoint("127.0.0.1", node.tcp.port), 7)) as root:
            root.login(password=password.encode())
        assert node.output().count(warning) == 1
        assert node.output().index(warning) < node.output().index(" is ready")
        node.stop()
        node.start()
        assert node.output().count(warning) == 2
    with running_node(profile="serve", arguments=("--allow-plaintext",)) as node:
        assert "TLS" not in node.output()


def test_the_first_start_shows_a_password_once_and_opens_nothing() -> None:
    """Two starts: 3 s, ten on a busy machine."""
    with running_node(profile="serve") as node:
        (password,) = PASSWORD.findall(node.output())
        assert len(password) >= 24
        with closing(RawClient(node.tcp, 7)) as root:
            with pytest.raises(EvictedError):
                root.login()  # the pair that everybody knows
            root.login(password=password.encode())
            root.call(streams.CREATE_STREAM, streams.CreateStream("../../shop"))
            root.call(topics.CREATE_TOPIC, topics.CreateTopic(0, 1, "a/b"))
        assert password not in Path(f"/proc/{node.pid}/cmdline").read_text()
        node.stop()
        node.start()
        assert len(PASSWORD.findall(node.output())) == 1
        assert open_to_others(node.data) == {}
        lines = audited(node.output())
        assert [(each["event"], each["outcome"]) for each in lines] == [
            ("create_user", "ok"),
            ("login", "wrong credentials"),
            ("login", "ok"),
        ]
        assert lines[2]["address"].startswith("127.0.0.1:")
        assert lines[2]["op"] > 0


def test_the_audit_log_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with running_node(environment={"HEADRACE_AUDIT_FILE": str(path)}) as node:
        with closing(RawClient(node.tcp, 7)) as root:
            root.login()
            root.call(users.CREATE_USER, make_anna())
            root.call(tokens.CREATE_TOKEN, tokens.CreateToken("mine", 0))
        assert audited(node.output()) == []
    assert [each["event"] for each in audited(path.read_text())] == [
        "create_user",
        "login",
        "create_user",
        "create_personal_access_token",
    ]
    assert open_to_others(path) == {}
    assert ANNA not in path.read_bytes()


def test_an_audit_log_that_others_may_read_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch()
    path.chmod(0o644)
    node = Node(tmp_path, environment={"HEADRACE_AUDIT_FILE": str(path)})
    with pytest.raises(NodeError, match=r"audit\.file .*others may read or change it: chmod 600"):
        node.start()


def test_a_password_is_stored_at_todays_cost_after_the_next_login(tmp_path: Path) -> None:
    """SE-1: the hash is of an earlier start, with other settings. Three starts: 4 s, 15 if busy."""
    with (
        started(Node(tmp_path, environment=CHEAP)) as weak,
        closing(RawClient(weak.tcp, 7)) as root,
    ):
        root.login()
        root.call(users.CREATE_USER, make_anna())
    with started(Node(tmp_path, environment={"HEADRACE_AUDIT_FILE": "stderr"})) as strong:
        for number in (8, 9):
            login_anna(strong, number)
    events = [each["event"] for each in audited(strong.output())]
    assert sorted(events) == ["login", "login", "strengthen_password_hash"]
    with started(strong):
        login_anna(strong, 10)


@contextmanager
def started(node: Node) -> Iterator[Node]:
    node.start()
    try:
        yield node
        node.stop()
    finally:
        if node.is_started:
            node.kill()


def make_anna() -> users.CreateUser:
    return users.CreateUser(username="anna", password=ANNA, status=UserStatus.ACTIVE)


def login_anna(node: Node, number: int) -> None:
    with closing(RawClient(node.tcp, number)) as client:
        client.login(username="anna", password=ANNA)
