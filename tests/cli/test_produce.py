"""`headrace produce` against a real node.

Share: check, about 10 s.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.known_secrets import make_password
from tests.node import Node, running_node

pytestmark = pytest.mark.slow

HEADRACE = (sys.executable, "-m", "headrace")
WAIT_SECONDS = 30
PASSWORD = make_password("produce").decode()


def values(client: headrace.Client, topic: str = "shop/orders") -> list[bytes]:
    with client.consumer(topic, wait=0) as consumer:
        return [message.value for message in consumer]


@pytest.fixture
def orders(clean: headrace.Client) -> headrace.Client:
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=2)
    return clean


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input"


def pipe(node: Node, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*HEADRACE, "produce", *arguments, "--address", str(node.tcp)],
        input=data,
        capture_output=True,
        check=False,
        timeout=WAIT_SECONDS,
    )


def test_lines_of_a_pipe(orders: headrace.Client, node: Node) -> None:
    done = pipe(node, b"one\n\ntwo\xff\nthree", "shop/orders", "--partition", "1")
    assert (done.returncode, done.stdout) == (0, b"")
    told = done.stderr.decode()
    assert told.startswith("3 messages to shop/orders in ")
    assert told.endswith("/s. Empty lines left out: 1.\n")
    assert values(orders) == [b"one", b"two\xff", b"three"]
    assert {message.partition for message in orders.poll("shop/orders", 1)} == {1}


def test_as_json(orders: headrace.Client, terminal: Terminal, file: Path) -> None:
    file.write_bytes(b"one\n\ntwo\n")
    told = terminal("produce", "shop/orders", "--file", str(file), "-o", "json")
    assert (told.code, told.err) == (Exit.OK, "")
    found = json.loads(told.out)
    assert found.pop("run_time_micros") > 0
    assert found == {
        "topic": "shop/orders",
        "messages_count": 2,
        "empty_count": 1,
        "bad_count": 0,
        "is_created": False,
    }


def test_another_delimiter_headers_and_key(
    orders: headrace.Client, terminal: Terminal, file: Path
) -> None:
    file.write_bytes(b"a\nb\0c")
    told = terminal(
        *["produce", "shop/orders", "--file", str(file), "--delimiter", r"\0", "--key", "ada"],
        *["--header", "source=web", "--batch", "1", "--linger", "0 s"],
    )
    assert told.code == Exit.OK, told.err
    with orders.consumer("shop/orders", wait=0) as consumer:
        found = list(consumer)
    assert [message.value for message in found] == [b"a\nb", b"c"]
    assert len({message.partition for message in found}) == 1
    assert [message.headers for message in found] == [{"source": "web"}] * 2


def test_csv_becomes_json(orders: headrace.Client, terminal: Terminal, file: Path) -> None:
    file.write_text('id;name\n1;ada\n2;"eve; or\nso"\n')
    told = terminal(
        *["produce", "shop/orders", "--format", "csv", "--file", str(file)],
        *["--delimiter", ";", "--key-field", "name"],
    )
    assert told.code == Exit.OK, told.err
    found = sorted(values(orders))
    assert found == [b'{"id":"1","name":"ada"}', b'{"id":"2","name":"eve; or\\nso"}']


def test_a_bad_line_stops_it(orders: headrace.Client, terminal: Terminal, file: Path) -> None:
    file.write_bytes(b'{"a":1}\nnot json\n{"a":2}\n')
    told = terminal("produce", "shop/orders", "--format", "jsonl", "--file", str(file))
    assert (told.code, told.out) == (Exit.FAILED, "")
    assert told.err.startswith("headrace: line 2: JSON is malformed")
    assert "; 1 message before it went through; --on-error skip leaves such lines out" in told.err
    assert values(orders) == [b'{"a":1}']


def test_bad_lines_are_left_out(orders: headrace.Client, terminal: Terminal, file: Path) -> None:
    file.write_bytes(b'{"a":1}\n' + b"not json\n" * 30 + b'{"a":2}\n')
    told = terminal(
        *["produce", "shop/orders", "--format", "jsonl", "--file", str(file)],
        *["--on-error", "skip", "--key-field", "a"],
    )
    assert told.code == Exit.OK
    lines = told.err.splitlines()
    assert len(lines) == 20 + 1 + 1
    assert lines[0].startswith("line 2 is left out: JSON is malformed")
    assert lines[20] == "more bad lines are only counted"
    assert lines[21].endswith("Bad lines left out: 30.")
    assert sorted(values(orders)) == [b'{"a":1}', b'{"a":2}']


def test_a_dev_node_gets_what_is_missing(
    clean: headrace.Client, terminal: Terminal, file: Path
) -> None:
    file.write_bytes(b"one\n")
    told = terminal("produce", "shop/orders", "--file", str(file), "--partitions", "3")
    assert told.code == Exit.OK
    assert told.err.startswith(
        "Created the stream shop and the topic shop/orders with 3 partitions.\n1 message to"
    )
    assert len(clean.get_topic("shop/orders").partitions) == 3
    told = terminal("produce", "shop/more", "--file", str(file), "-o", "json")
    assert told.err == "Created the topic shop/more with 1 partition.\n"
    assert json.loads(told.out)["is_created"] is True


@pytest.mark.parametrize("arguments", [("a/b", "--no-create"), ("7/9",)])
def test_what_is_missing_may_stay_so(
    clean: headrace.Client, terminal: Terminal, file: Path, arguments: tuple[str, ...]
) -> None:
    file.write_bytes(b"one\n")
    told = terminal("produce", *arguments, "--file", str(file))
    assert (told.code, told.out) == (Exit.NOT_FOUND, "")
    assert f"headrace: produce to {arguments[0]}: stream id not found" in told.err
    assert "--create creates it" in told.err
    assert clean.get_streams() == ()


@pytest.fixture(scope="module")
def served() -> Iterator[Node]:
    environment = {"HEADRACE_ROOT_USERNAME": "iggy", "HEADRACE_ROOT_PASSWORD": PASSWORD}
    with running_node(profile="serve", environment=environment) as started:
        yield started


def test_elsewhere_only_if_it_is_said(
    lone_terminal: Terminal, served: Node, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_USERNAME", "iggy")
    monkeypatch.setenv("HEADRACE_PASSWORD", PASSWORD)
    monkeypatch.setenv("HEADRACE_ADDRESS", str(served.tcp))
    file.write_bytes(b"one\n")
    told = lone_terminal("produce", "shop/orders", "--file", str(file))
    assert (told.code, told.out) == (Exit.NOT_FOUND, "")
    told = lone_terminal("produce", "shop/orders", "--file", str(file), "--create")
    assert told.code == Exit.OK
    assert told.err.startswith("Created the stream shop and the topic shop/orders with 1 partition")


def test_options_that_contradict_are_told_together(terminal: Terminal) -> None:
    told = terminal("produce", "a/b", "--key-field", "x", "--partition", "1", "--delimiter", "")
    assert (told.code, told.out) == (Exit.USAGE, "")
    assert "--key-field: lines have no fields" in told.err
    assert "--key-field, --partition: each decides the partition; give one of them" in told.err
    assert "--delimiter: '' is not one character" in told.err


def test_who_may_not_send_is_told_what_is_needed(
    orders: headrace.Client, terminal: Terminal, file: Path
) -> None:
    orders.create_user("ada", PASSWORD)
    file.write_bytes(b"one\n" * 3)
    told = terminal(
        *["produce", "shop/orders", "--partition", "0", "--file", str(file)],
        *["--username", "ada", "--password", PASSWORD],
    )
    assert (told.code, told.out) == (Exit.AUTH, "")
    assert told.err.splitlines()[0] == "It failed after 0 messages were confirmed."
    assert "send_messages" in told.err.splitlines()[1]


def test_a_rate_is_kept(orders: headrace.Client, terminal: Terminal, file: Path) -> None:
    """Not faster than asked: that much can be said on a busy machine too."""
    file.write_bytes(b"x\n" * 50)
    began = time.monotonic()
    told = terminal("produce", "shop/orders", "--file", str(file), "--rate", "200")
    assert told.code == Exit.OK
    assert time.monotonic() - began >= 40 / 200
    assert len(values(orders)) == 50


def test_an_interrupt_sends_what_was_read(orders: headrace.Client, node: Node) -> None:
    with subprocess.Popen(
        [*HEADRACE, "produce", "shop/orders", "--address", str(node.tcp)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        with orders.consumer("shop/orders", wait=WAIT_SECONDS) as consumer:
            seen = [next(consumer).value, next(consumer).value]
        process.send_signal(signal.SIGINT)
        told = process.stderr.read().decode()  # while its input is still open
        code = process.wait(WAIT_SECONDS)
    assert seen == [b"one", b"two"]
    assert told.startswith("Interrupted. 2 messages to shop/orders in ")
    assert code == 130
