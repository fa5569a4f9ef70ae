"""`headrace options` against a real node."""

import json

import pytest

from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal

pytestmark = pytest.mark.slow


def test_as_a_table(terminal: Terminal) -> None:
    told = terminal("options")
    assert (told.code, told.err) == (Exit.OK, "")
    for words in ("key", "durability", "segment_size", "when a send is acknowledged"):
        assert words in told.out


def test_as_json(terminal: Terminal) -> None:
    told = terminal("options", "topic", "-o", "json")
    assert (told.code, told.err) == (Exit.OK, "")
    found = {each["key"]: each for each in json.loads(told.out)}
    assert found["segment_size"]["kind"] == "uint64"
    assert isinstance(found["segment_size"]["default"], int)
    assert found["durability"]["default"] in ("persisted", "replicated")
    assert isinstance(found["preallocate_segments"]["default"], bool)


@pytest.mark.parametrize("scope", ["stream", "user"])
def test_other_objects_have_none_yet(terminal: Terminal, scope: str) -> None:
    told = terminal("options", scope, "-o", "json")
    assert (told.code, json.loads(told.out)) == (Exit.OK, [])


def test_failure(terminal: Terminal) -> None:
    told = terminal("options", "segment")
    assert (told.code, told.out) == (Exit.USAGE, "")
    assert "'segment' is not one of 'topic', 'stream', 'user'" in told.err
