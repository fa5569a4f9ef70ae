import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    LOGIN_TOKEN,
    ClientVersion,
    PasswordLogin,
    Register,
    Registered,
    TokenLogin,
)
from headrace.wire.commands.users import CHANGE_PASSWORD, ChangePassword
from headrace.wire.errors import DecodeError
from headrace.wire.versions import PROTOCOL_PACKED
from tests.wire.values import NAMES

VERSION = ClientVersion(PROTOCOL_PACKED, "rust-sdk", "0.11.0")


def test_the_password_login_of_the_released_sdk() -> None:
    body = LOGIN_PASSWORD.encode_request(Register(VERSION, PasswordLogin("iggy", b"iggy")))
    assert body == (
        bytes.fromhex("002c0000") + b"\x08rust-sdk\x060.11.0\x04iggy\x04iggy" + bytes(4)
    )


def test_a_token_login_does_not_read_as_a_password() -> None:
    body = LOGIN_TOKEN.encode_request(Register(VERSION, token=TokenLogin(b"secret")))
    assert LOGIN_TOKEN.decode_request(body) == Register(VERSION, token=TokenLogin(b"secret"))


@given(NAMES, st.binary(max_size=100), st.text(max_size=9))
def test_a_password_login_is_always_among_the_readings(
    username: str, password: bytes, context: str
) -> None:
    login = PasswordLogin(username, password, context)
    body = LOGIN_PASSWORD.encode_request(Register(VERSION, login))
    assert LOGIN_PASSWORD.decode_request(body).password == login


@given(st.binary(min_size=1, max_size=255), st.text(max_size=9))
def test_a_token_login_is_always_among_the_readings(token: bytes, context: str) -> None:
    login = TokenLogin(token, context)
    body = LOGIN_TOKEN.encode_request(Register(VERSION, token=login))
    assert LOGIN_TOKEN.decode_request(body).token == login


def test_a_login_without_context_is_read() -> None:
    body = LOGIN_PASSWORD.encode_request(Register(VERSION, PasswordLogin("iggy", b"iggy")))
    assert LOGIN_PASSWORD.decode_request(body[:-4]).password == PasswordLogin("iggy", b"iggy")


def test_a_login_of_neither_shape_still_shows_its_version() -> None:
    """The version gate answers before the shape is looked at."""
    body = LOGIN_PASSWORD.encode_request(Register(VERSION, PasswordLogin("iggy", b"iggy")))
    assert LOGIN_PASSWORD.decode_request(body[:20]) == Register(VERSION)
    with pytest.raises(DecodeError):
        LOGIN_PASSWORD.decode_request(body[:19])


def test_a_login_has_one_shape() -> None:
    for register in (
        Register(VERSION),
        Register(VERSION, PasswordLogin("iggy", b"iggy"), TokenLogin(b"secret")),
    ):
        with pytest.raises(ValueError, match="by password or by token"):
            LOGIN_PASSWORD.encode_request(register)


def test_the_session_of_a_login() -> None:
    registered = Registered(0, 9, PROTOCOL_PACKED, "0.1.0")
    payload = LOGIN_PASSWORD.encode_reply(registered)
    assert payload == bytes(4) + b"\x09" + bytes(7) + bytes.fromhex("002c0000") + b"\x050.1.0"
    assert LOGIN_PASSWORD.decode_reply(payload) == registered


def test_what_was_read_does_not_show_its_secrets() -> None:
    password = LOGIN_PASSWORD.encode_request(Register(VERSION, PasswordLogin("ada", b"hush-hush")))
    assert "hush" not in repr(LOGIN_PASSWORD.decode_request(password))
    token = LOGIN_TOKEN.encode_request(Register(VERSION, token=TokenLogin(b"hush-hush")))
    assert "hush" not in repr(LOGIN_TOKEN.decode_request(token))
    change = CHANGE_PASSWORD.encode_request(ChangePassword("ada", b"hush", b"hush-hush"))
    assert "hush" not in repr(CHANGE_PASSWORD.decode_request(change))
