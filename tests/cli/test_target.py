"""Which node a command talks to, as whom, and how it ends when that does not work."""

import os
import socket
from pathlib import Path

import pytest

import headrace
from headrace.base.endpoints import Endpoint
from headrace.cli.connect.contexts import Context, Contexts, save_contexts
from headrace.cli.connect.target import complete, resolve_address
from headrace.cli.exits import CommandError, Exit
from tests.cli.conftest import Terminal
from tests.node import Node

NODE = "10.0.0.7:8090"
TOKEN = {"HEADRACE_TOKEN": "t"}
PASSWORD = {"HEADRACE_USERNAME": "ada", "HEADRACE_PASSWORD": "p"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with the current context `prod`, in which ada has a password."""
    environment = {"HEADRACE_HOME": str(tmp_path)}
    prod = Context(NODE, "ada", "p")
    save_contexts(environment, Contexts("prod", {"prod": prod}))
    return environment


def credentials(environment: dict[str, str]) -> dict[str, str]:
    names = ("HEADRACE_USERNAME", "HEADRACE_PASSWORD", "HEADRACE_TOKEN")
    return {name: environment[name] for name in names if name in environment}


def test_the_address_comes_from_the_nearest_source(home: dict[str, str]) -> None:
    variable = home | {"HEADRACE_ADDRESS": "127.0.0.1:7"}
    assert resolve_address("127.0.0.1:9", variable) == Endpoint("127.0.0.1", 9)
    assert resolve_address(None, variable) == Endpoint("127.0.0.1", 7)
    assert resolve_address(None, home) == Endpoint("10.0.0.7", 8090)
    save_contexts(home, Contexts())
    assert resolve_address(None, home) == Endpoint("127.0.0.1", 8090)


def test_a_wrong_address_names_its_source(home: dict[str, str]) -> None:
    save_contexts(home, Contexts("x", {"x": Context("nonsense")}))
    for flag, environment, name in (
        ("nonsense", home, "--address: "),
        (None, home | {"HEADRACE_ADDRESS": "nonsense"}, "HEADRACE_ADDRESS: "),
        (None, home, "the context's address: "),
    ):
        with pytest.raises(CommandError, match="has no port") as caught:
            resolve_address(flag, environment)
        assert str(caught.value).startswith(name)


def test_the_contexts_credentials_are_for_its_node_alone(home: dict[str, str]) -> None:
    assert credentials(complete(home, None)) == PASSWORD
    assert credentials(complete(home, NODE)) == PASSWORD
    assert credentials(complete(home, "10.0.0.8:8090")) == {}
    assert credentials(complete(home | {"HEADRACE_ADDRESS": "10.0.0.8:8090"}, None)) == {}


def test_credentials_are_taken_together(home: dict[str, str]) -> None:
    assert credentials(complete(home | TOKEN, None)) == TOKEN
    name = {"HEADRACE_USERNAME": "grace"}
    assert credentials(complete(home | name, None)) == name
    assert credentials(complete(home, None, is_named=True)) == {}
    save_contexts(home, Contexts("prod", {"prod": Context(NODE, "ada", "p", "t")}))
    assert credentials(complete(home, None)) == TOKEN


class TestAgainstANode:
    """Share: check, about 5 s."""

    pytestmark = pytest.mark.slow

    @pytest.fixture
    def ada(self, clean: headrace.Client) -> None:
        clean.create_user("ada", "secret-of-ada")

    def test_credentials_of_flags(self, terminal: Terminal, ada: None) -> None:
        told = terminal("stream", "list", "--username", "ada", "--password", "secret-of-ada")
        assert told.code == Exit.AUTH
        assert "it needs manage_streams or read_streams everywhere" in told.err

    def test_credentials_of_the_environment(
        self, terminal: Terminal, ada: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADRACE_USERNAME", "ada")
        monkeypatch.setenv("HEADRACE_PASSWORD", "secret-of-ada")
        assert "unauthorized" in terminal("stream", "list").err
        monkeypatch.setenv("HEADRACE_PASSWORD", "wrong")
        assert "invalid credentials" in terminal("stream", "list").err

    def test_credentials_of_the_context(
        self, lone_terminal: Terminal, node: Node, ada: None
    ) -> None:
        ada_there = Context(str(node.tcp), "ada", "secret-of-ada")
        save_contexts(os.environ, Contexts("here", {"here": ada_there}))
        assert "unauthorized" in lone_terminal("stream", "list").err
        told = lone_terminal("stream", "list", "--username", "iggy", "--password", "iggy")
        assert told.code == Exit.OK

    def test_a_token(self, terminal: Terminal, clean: headrace.Client) -> None:
        token = clean.create_token("laptop")
        assert terminal("pat", "list", "--token", token).code == Exit.OK
        told = terminal("pat", "list", "--token", token, "--username", "iggy")
        assert told.code == Exit.USAGE
        assert "not both" in told.err

    def test_a_password_from_the_input(self, terminal: Terminal, ada: None) -> None:
        flags = ("--username", "ada", "--password", "-")
        told = terminal("user", "get", "ada", *flags, typed="secret-of-ada\n")
        assert told.code == Exit.OK
        told = terminal("user", "get", "ada", *flags)
        assert told.code == Exit.USAGE
        assert "nothing to read from the input" in told.err

    def test_no_credentials_for_a_far_node(self, lone_terminal: Terminal) -> None:
        told = lone_terminal("stream", "list", "--address", "192.0.2.1:8090")
        assert told.code == Exit.USAGE
        assert "no credentials for 192.0.2.1:8090: give username and password" in told.err

    def test_nobody_there_is_said_at_once(self, lone_terminal: Terminal) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        told = lone_terminal("stream", "list", "--address", address, "--timeout", "1h")
        assert told.code == Exit.UNAVAILABLE
        assert told.err.startswith(f"headrace: {address} cannot be reached: ")

    def test_nobody_answers(self, lone_terminal: Terminal) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            told = lone_terminal("stream", "list", "--address", address, "--timeout", "50ms")
        assert told.code == Exit.UNAVAILABLE

    @pytest.mark.parametrize("span", ["soon", "0 s", "2 days"])
    def test_a_wrong_timeout(self, terminal: Terminal, span: str) -> None:
        told = terminal("stream", "list", "--timeout", span)
        assert told.code == Exit.USAGE
        assert told.err.startswith("headrace: timeout: ")

    def test_what_does_not_fit_the_protocol_is_wrong_usage(self, terminal: Terminal) -> None:
        told = terminal("stream", "create", "x" * 256)
        assert told.code == Exit.USAGE
        assert "256" in told.err

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("stream", "get", "nothing"), Exit.NOT_FOUND),
            (("tail", "nothing/orders"), Exit.NOT_FOUND),
            (("stream", "list", "--username", "ada", "--password", "not-hers-at-all"), Exit.AUTH),
            (("stream", "create", "x" * 256), Exit.USAGE),
        ],
    )
    def test_the_address_of_a_context_is_named_in_every_failure(
        self, lone_terminal: Terminal, node: Node, ada: None, arguments: tuple[str, ...], code: Exit
    ) -> None:
        del ada
        save_contexts(os.environ, Contexts("prod", {"prod": Context(str(node.tcp))}))
        told = lone_terminal(*arguments)
        assert told.code == code
        assert f"; the node is {node.tcp}, from the context prod\n" in told.err
        told = lone_terminal(*arguments, "--address", str(node.tcp))
        assert told.code == code
        assert "from the context" not in told.err


@pytest.mark.parametrize("arguments", [("ping", "--count", "1"), ("stream", "list"), ("logout",)])
def test_a_node_of_a_context_that_cannot_be_reached_is_named(
    lone_terminal: Terminal, arguments: tuple[str, ...]
) -> None:
    kept = Context("127.0.0.1:1", "ada", token="t", token_name="cli-1")
    save_contexts(os.environ, Contexts("prod", {"prod": kept}))
    told = lone_terminal(*arguments)
    assert told.code == Exit.UNAVAILABLE
    assert "; the node is 127.0.0.1:1, from the context prod\n" in told.err
