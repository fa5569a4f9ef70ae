"""Where a client connects, and as whom (design section 2)."""

import pytest

from headrace.base.endpoints import Endpoint
from headrace.client.session.settings import ConnectOptions, read_seconds, resolve
from headrace.wire.commands.session import PasswordLogin, TokenLogin

IGGY = PasswordLogin("iggy", b"iggy")


def test_nothing_at_all_is_the_node_next_door() -> None:
    settings = resolve(None, {}, {})
    assert settings.endpoint == Endpoint("127.0.0.1", 8090)
    assert settings.login == IGGY


@pytest.mark.parametrize(
    ("address", "environment", "wanted"),
    [
        ("localhost:1", {"HEADRACE_ADDRESS": "localhost:2"}, 1),
        (None, {"HEADRACE_ADDRESS": "localhost:2"}, 2),
        (None, {"HEADRACE_ADDRESS": ""}, 8090),
    ],
)
def test_an_argument_goes_before_the_environment(
    address: str | None, environment: dict[str, str], wanted: int
) -> None:
    assert resolve(address, {}, environment).endpoint.port == wanted


ALL = {"HEADRACE_TOKEN": "t", "HEADRACE_USERNAME": "u", "HEADRACE_PASSWORD": "p"}
NAMED = {"HEADRACE_USERNAME": "u", "HEADRACE_PASSWORD": "p"}


@pytest.mark.parametrize(
    ("options", "environment", "wanted"),
    [
        ({"token": "T"}, ALL, TokenLogin(b"T")),
        ({"username": "U", "password": "P"}, ALL, PasswordLogin("U", b"P")),
        ({"password": "P"}, NAMED, PasswordLogin("u", b"P")),
        ({}, ALL, TokenLogin(b"t")),
        ({}, NAMED, PasswordLogin("u", b"p")),
        ({}, {}, IGGY),
    ],
)
def test_credentials(
    options: ConnectOptions, environment: dict[str, str], wanted: PasswordLogin | TokenLogin
) -> None:
    assert resolve(None, options, environment).login == wanted


@pytest.mark.parametrize(
    ("address", "options", "told"),
    [
        ("example.org:8090", {}, "no credentials for example.org:8090"),
        ("127.0.0.1:8090", {"username": "ada"}, "no credentials"),
        ("127.0.0.1:8090", {"token": "t", "username": "ada"}, "not both"),
        ("nowhere", {}, "address: "),
        ("127.0.0.1:0", {}, "no port"),
        (None, {"timeout": "soon"}, "timeout: "),
        (None, {"timeout": 0}, "timeout: "),
        (None, {"answer_timeout": -1.0}, "answer_timeout: "),
        (None, {"heartbeat": "2 days"}, "heartbeat: "),
    ],
)
def test_what_is_wrong_is_named(address: str | None, options: ConnectOptions, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        resolve(address, options, {})


def test_durations_are_text_or_seconds() -> None:
    assert read_seconds("x", "250 ms") == 0.25
    assert read_seconds("x", 2) == 2.0
    assert read_seconds("x", 0, zero=True) == 0.0


def test_settings_do_not_show_secrets() -> None:
    shown = repr(resolve(None, {"username": "ada", "password": "hunter22"}, {}))
    assert "hunter22" not in shown
