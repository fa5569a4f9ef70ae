"""`headrace me` against a real node."""

import json

import pytest

from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal

pytestmark = pytest.mark.slow


def test_as_a_table(terminal: Terminal) -> None:
    told = terminal("me")
    assert (told.code, told.err) == (Exit.OK, "")
    for words in ("user id", "transport", "tcp", "127.0.0.1:"):
        assert words in told.out


def test_as_json(terminal: Terminal) -> None:
    told = terminal("me", "-o", "json")
    assert (told.code, told.err) == (Exit.OK, "")
    found = json.loads(told.out)
    assert list(found) == ["id", "user_id", "transport", "address", "groups_count", "groups"]
    assert (found["user_id"], found["transport"], found["groups"]) == (0, "tcp", [])


def test_failure(terminal: Terminal) -> None:
    told = terminal("me", "--username", "iggy", "--password", "wrong")
    assert (told.code, told.out) == (Exit.AUTH, "")
    assert "invalid credentials" in told.err
