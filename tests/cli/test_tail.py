"""`headrace tail` against a real node.

Share: check, about 10 s.
"""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

import headrace
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.node import Node

pytestmark = pytest.mark.slow

HEADRACE = (sys.executable, "-m", "headrace")
WAIT_SECONDS = 30


@pytest.fixture
def orders(clean: headrace.Client) -> headrace.Client:
    """Twelve messages, one after the other into three partitions in turn."""
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=3)
    for number in range(12):
        clean.send("shop/orders", [f"order {number}"], partition=number % 3)
    return clean


def lines(*numbers: int) -> str:
    return "".join(f"order {number}\n" for number in numbers)


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ("", range(2, 12)),
        ("--from earliest", range(12)),
        ("--from latest", ()),
        ("--from end-4", range(8, 12)),
        ("--from end-100", range(12)),
        ("--from 3", (9, 10, 11)),
        ("--from earliest --partition 1", (1, 4, 7, 10)),
        ("--partition 1 --from end-2", (7, 10)),
        ("--from earliest --count 5", range(5)),
        ("--from end-5 --count 2", (7, 8)),
        ("--from earliest --filter 1", (1, 10, 11)),
        ("--from earliest --filter /1.$/", (10, 11)),
        ("--from earliest --filter 1 --filter 0", (10,)),
        ("--from earliest --filter 1 --count 2", (1, 10)),
        ("--filter 0 --from end-1", (10,)),
        ("--filter /^order.[01]$/", (0, 1)),
        ("--filter /^order.[01]$/ --partition 1", (1,)),
        ("--filter /[0-4]$/ --from end-3", (4, 10, 11)),
        ("--from -1h --count 1", (0,)),
    ],
)
def test_what_is_shown(
    orders: headrace.Client, terminal: Terminal, arguments: str, numbers: tuple[int, ...]
) -> None:
    del orders
    told = terminal("tail", "shop/orders", *arguments.split())
    assert (told.code, told.err) == (Exit.OK, "")
    assert told.out == lines(*numbers)


def test_from_a_time(orders: headrace.Client, terminal: Terminal) -> None:
    when = orders.poll("shop/orders", 0, start=2, count=1)[0].timestamp  # order 6
    moment = datetime.fromtimestamp(when / 1_000_000, UTC).isoformat()
    told = terminal("tail", "shop/orders", "--from", moment)
    assert told.out == lines(*range(6, 12))


def test_columns_and_json(orders: headrace.Client, terminal: Terminal) -> None:
    told = terminal("tail", "shop/orders", "--count", "2", "--show", "partition,offset")
    assert told.out == "2\t0\torder 2\n0\t1\torder 3\n"
    told = terminal("tail", "shop/orders", "--from", "end-2", "-o", "json")
    found = json.loads(told.out)
    assert [(each["partition"], each["offset"], each["value"]) for each in found] == [
        (1, 3, "order 10"),
        (2, 3, "order 11"),
    ]
    assert set(found[0]) == {
        *["partition", "offset", "timestamp_at", "origin_timestamp_at"],
        *["id", "value", "encoding", "headers"],
    }
    told = terminal("tail", "shop/orders", "--from", "end-2", "-o", "jsonl")
    assert [json.loads(line) for line in told.out.splitlines()] == found
    orders.send("shop/orders", ['{"who":{"name":"ada"},"n":1}', "{}"], partition=0)
    told = terminal("tail", "shop/orders", "--filter", ".who.name=ada", "--json")
    assert told.out == '{\n  "who": {\n    "name": "ada"\n  },\n  "n": 1\n}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("shop/none", Exit.NOT_FOUND, "topic id not found"),
        ("shoo/orders", Exit.NOT_FOUND, "stream id not found"),
        ("shop/orders --partition 9", Exit.NOT_FOUND, "partition"),
        ("shop", Exit.USAGE, "write STREAM/TOPIC"),
        ("shop/orders --from then", Exit.USAGE, "is no place to begin"),
        ("shop/orders --filter /(/", Exit.USAGE, "is no regular expression"),
        ("shop/orders --show key", Exit.USAGE, "--show: key is none of partition, offset"),
        (
            "shop/orders --group g --partition 1",
            Exit.USAGE,
            "not allowed with --consumer",
        ),
        ("shop/orders --group g --from 7", Exit.USAGE, "a group begins at earliest, latest"),
        ("shop/orders --address 127.0.0.1:1", Exit.UNAVAILABLE, "cannot be reached"),
    ],
)
def test_failures(
    orders: headrace.Client, terminal: Terminal, arguments: str, code: Exit, words: str
) -> None:
    del orders
    told = terminal("tail", *arguments.split())
    assert (told.code, told.out) == (code, "")
    assert words in told.err


def test_a_consumer_goes_on_where_it_was(orders: headrace.Client, terminal: Terminal) -> None:
    del orders
    first = terminal(
        "tail", "shop/orders", "--consumer", "me", "--from", "earliest", "--count", "5"
    )
    assert first.out == lines(*range(5))
    then = terminal("tail", "shop/orders", "--consumer", "me", "--from", "earliest")
    assert then.out == lines(*range(5, 12))
    assert terminal("tail", "shop/orders", "--consumer", "me").out == ""


def test_a_group_goes_on_where_it_was(orders: headrace.Client, terminal: Terminal) -> None:
    del orders
    first = terminal("tail", "shop/orders", "--group", "g", "--count", "5")
    then = terminal("tail", "shop/orders", "--group", "g")
    assert sorted([*first.out.splitlines(), *then.out.splitlines()]) == sorted(
        lines(*range(12)).splitlines()
    )
    assert len(first.out.splitlines()) == 5
    assert terminal("tail", "shop/orders", "--group", "g").out == ""


def test_a_range_that_is_gone_is_told(clean: headrace.Client, terminal: Terminal) -> None:
    clean.create_stream("logs")
    clean.create_topic("logs/web", options={"segment_size": "1 MiB"})
    for _ in range(5):
        clean.send("logs/web", [b"x" * 1000] * 700, partition=0)
    clean.store_offset("logs/web", 0, 3499, consumer="fast")
    deadline = time.monotonic() + WAIT_SECONDS
    while clean.poll("logs/web", count=1)[0].offset == 0:
        clean.delete_segments("logs/web", 0, 1)
        assert time.monotonic() < deadline
    oldest = clean.poll("logs/web", count=1)[0].offset
    told = terminal("tail", "logs/web", "--from", "10", "--count", "1", "--show", "offset")
    assert told.code == Exit.OK
    assert told.err == (
        f"logs/web, partition 0: the {oldest - 10} offsets 10 to {oldest - 1} are gone;"
        f" reading goes on at {oldest}\n"
    )
    assert told.out.startswith(f"{oldest}\t")
    told = terminal("tail", "logs/web", "--from", "end-9999", "--count", "1", "--show", "offset")
    assert (told.err, told.out.split("\t")[0]) == (
        "",
        str(oldest),
    )  # Nobody asked for what is gone.


def test_an_offset_behind_the_end_is_told(orders: headrace.Client, terminal: Terminal) -> None:
    del orders
    told = terminal("tail", "shop/orders", "--partition", "0", "--from", "99")
    assert (told.code, told.out) == (Exit.OK, "")
    assert told.err == "partition 0: it ends at offset 3, reading begins behind that\n"


def test_following(orders: headrace.Client, node: Node) -> None:
    """What comes is shown, also from a partition that is made meanwhile; share: about 6 s."""
    with subprocess.Popen(
        [*HEADRACE, "tail", "shop/orders", "-f", "--count", "13", "--address", str(node.tcp)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline() for _ in range(10)]
        orders.send("shop/orders", ["order 12"], partition=0)
        shown.append(process.stdout.readline())
        orders.create_partitions("shop/orders", 1)
        orders.send("shop/orders", ["order 13", "order 14"], partition=3)
        rest, told = process.communicate(timeout=WAIT_SECONDS)
    assert "".join(shown) + rest == lines(*range(2, 15))
    assert (process.returncode, told) == (0, "")


def test_a_reader_that_leaves_ends_it(orders: headrace.Client, node: Node) -> None:
    orders.send("shop/orders", [b"x" * 1000] * 5000, partition=0)
    with subprocess.Popen(
        [*HEADRACE, "tail", "shop/orders", "--from", "earliest", "--address", str(node.tcp)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "order 0\n"
        process.stdout.close()
        told = process.stderr.read()
    assert "Traceback" not in told
    assert told == ""
    assert process.returncode == 0


def test_a_reader_that_leaves_ends_it_though_nothing_new_comes(
    orders: headrace.Client, node: Node
) -> None:
    """`tail -f ... | head -1`: no write finds the pipe broken."""
    del orders
    with subprocess.Popen(
        [*HEADRACE, "tail", "shop/orders", "-f", "--address", str(node.tcp)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(10)] == lines(*range(2, 12)).splitlines(
            True
        )
        process.stdout.close()
        try:
            code = process.wait(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        told = process.stderr.read()
    assert (code, told) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("tail", "shop/orders"),
        ("tail", "shop/orders", "-o", "json"),
        ("stream", "list"),
        ("stream", "list", "-o", "json"),
        ("ping", "--count", "1"),
    ],
)
def test_a_reader_that_has_left_before_is_no_failure(
    orders: headrace.Client, node: Node, arguments: tuple[str, ...]
) -> None:
    """The output is so short that only its last flush finds the pipe broken."""
    del orders
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*HEADRACE, *arguments, "--address", str(node.tcp)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
