"""Secrets stay where they belong: not in output, data, arguments, statistics or archives.

The data and the output of every node of the tests are searched when it ends (`watched_nodes.py`);
here a node is made to handle every kind of secret there is, and is asked for all it tells.
"""

import io
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headrace.wire.commands import clients, system, tokens, users
from headrace.wire.commands.counters import GET_COUNTERS
from headrace.wire.commands.session import LOGIN_PASSWORD
from headrace.wire.commands.table import AnyCommand
from headrace.wire.numbers import SnapshotCompression, SnapshotType, UserStatus
from tests.e2e.raw import RawClient, make_register
from tests.known_secrets import HASH_MARK, make_password, search
from tests.node import Node, running_node
from tests.security.house import ask

pytestmark = pytest.mark.slow

ROOT_PASSWORD = make_password("root-of-serve")
TELLING: tuple[AnyCommand, ...] = (
    system.GET_STATS,
    GET_COUNTERS,
    clients.GET_CLIENTS,
    users.GET_USERS,
)
EVERYTHING = system.GetSnapshot(SnapshotCompression.STORED, (SnapshotType.ALL,))


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A strict node, with its audit lines on: it may tell more than `dev` does."""
    given = {"HEADRACE_ROOT_PASSWORD": ROOT_PASSWORD.decode()}
    with running_node(profile="serve", environment=given) as made:
        yield made


@pytest.fixture(scope="module")
def root(node: Node) -> Iterator[RawClient]:
    """The root user, after all that can be done with secrets was done, right and wrong."""
    with closing(RawClient(node.tcp, 1)) as client:
        client.login(password=ROOT_PASSWORD)
        _use_secrets(node, client)
        yield client


def _use_secrets(node: Node, root: RawClient) -> None:
    password, changed = make_password("alice"), make_password("alice-changed")
    made = users.CreateUser(username="alice", password=password, status=UserStatus.ACTIVE)
    root.call(users.CREATE_USER, made)
    assert ask(root, users.CREATE_USER, made) == "refused USER_ALREADY_EXISTS"
    short = users.CreateUser(username="anna", password=b"short", status=UserStatus.ACTIVE)
    assert ask(root, users.CREATE_USER, short) == "refused INVALID_PASSWORD"
    wrong = users.ChangePassword("alice", make_password("wrong"), changed)
    assert ask(root, users.CHANGE_PASSWORD, wrong) == "refused INVALID_CREDENTIALS"
    root.call(users.CHANGE_PASSWORD, users.ChangePassword("alice", password, changed))
    token = root.call(tokens.CREATE_TOKEN, tokens.CreateToken("key", 0)).token
    logins = [
        (make_register(token), "done"),
        (make_register(token[:-1] + "x"), "evicted INVALID_TOKEN"),
        (make_register(username="alice", password=password), "evicted INVALID_CREDENTIALS"),
    ]
    for number, (register, wanted) in enumerate(logins, 2):
        with closing(RawClient(node.tcp, number)) as client:
            assert ask(client, LOGIN_PASSWORD, register) == wanted
    root.call(tokens.DELETE_TOKEN, tokens.DeleteToken("key"))


def test_what_a_node_prints_and_keeps_holds_no_secret(node: Node, root: RawClient) -> None:
    """The same search that ends every node of the tests, while this one still runs."""
    assert search(node.data.parent) == []


def test_what_a_node_tells_of_itself_holds_no_secret(root: RawClient, tmp_path: Path) -> None:
    told = [repr(root.call(command, None)).encode() for command in TELLING]
    archive = bytes(root.call(system.GET_SNAPSHOT, EVERYTHING))
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        assert files.namelist()
        told += [files.read(name) for name in files.namelist()]
    for number, text in enumerate(told):
        (tmp_path / f"{number}.log").write_bytes(text)
        assert HASH_MARK not in text
    assert search(tmp_path) == []


def test_the_process_has_no_secret_among_its_arguments(node: Node) -> None:
    assert ROOT_PASSWORD not in Path(f"/proc/{node.pid}/cmdline").read_bytes()


def test_only_the_owner_can_read_what_a_node_keeps(node: Node) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in node.data.rglob("*")}
    modes[node.data] = stat.S_IMODE(node.data.stat().st_mode)
    open_to_others = {path: oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert open_to_others == {}


def test_a_password_that_is_made_up_is_shown_once_and_kept_nowhere() -> None:
    with TemporaryDirectory(prefix="headrace-test-") as folder:
        node = Node(Path(folder), profile="serve")
        node.start()
        found = re.findall(r"password\S* (\S{24,})", node.output())
        (password,) = {each.strip("'\".,") for each in found}
        with closing(RawClient(node.tcp, 1)) as client:
            client.login(password=password.encode())
        node.stop()
        node.start()
        node.stop()
        assert node.output().count(password) == 1
        holding = [
            path
            for path in node.data.rglob("*")
            if path.is_file() and password.encode() in path.read_bytes()
        ]
        assert holding == []
