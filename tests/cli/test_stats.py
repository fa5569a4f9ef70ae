"""`headrace stats` against a real node."""

import json

import pytest

import headrace
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.known_secrets import make_password

pytestmark = pytest.mark.slow

PASSWORD = make_password("stats").decode()


def test_as_a_table(clean: headrace.Client, terminal: Terminal) -> None:
    clean.create_stream("shop")
    told = terminal("stats")
    assert (told.code, told.err) == (Exit.OK, "")
    for words in ("profile", "dev", "streams", "free disk", "counters", "connections.open"):
        assert words in told.out


def test_as_json(clean: headrace.Client, terminal: Terminal) -> None:
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=2)
    clean.send("shop/orders", ["one", "two"], partition=0)
    told = terminal("stats", "-o", "json")
    assert (told.code, told.err) == (Exit.OK, "")
    found = json.loads(told.out)
    assert (found["profile"], found["streams_count"], found["partitions_count"]) == ("dev", 1, 2)
    assert found["messages_count"] == 2
    assert found["total_disk_bytes"] >= found["free_disk_bytes"] > 0
    counters = {each["name"]: each["value"] for each in found["counters"]}
    assert list(counters) == sorted(counters)
    assert counters["connections.open"] >= 2
    assert counters["partitions.open"] == 2
    assert counters["partitions.materialised"] >= 2  # a mark of the core
    assert counters["journal.metadata_syncs"] >= 1  # of the real world
    assert counters["metadata.commit"] >= 2


def test_failure(clean: headrace.Client, terminal: Terminal) -> None:
    clean.create_user("ada", PASSWORD)
    told = terminal("stats", "--username", "ada", "--password", PASSWORD)
    assert (told.code, told.out) == (Exit.AUTH, "")
    assert "it needs manage_servers or read_servers" in told.err
    assert told.err.count("\n") == 1
