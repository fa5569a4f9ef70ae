"""SE-6 across a kill: what the node has ordered and kept has its line. About 5 s."""

import json
from pathlib import Path

import pytest

from headrace.wire.commands.streams import (
    CREATE_STREAM,
    DELETE_STREAM,
    GET_STREAMS,
    CreateStream,
    DeleteStream,
)
from tests.crash.client import Client
from tests.crash.faults import Action, Call
from tests.crash.steps import faulty_node

pytestmark = pytest.mark.slow


def test_an_order_that_died_before_its_answer_has_its_line(library: Path, tmp_path: Path) -> None:
    """The kill comes when the journal holds the op, before it is durable, applied and answered."""
    path = tmp_path / "audit.jsonl"
    with faulty_node(library) as (node, faults):
        node.set_environment(HEADRACE_AUDIT_FILE=str(path))
        node.start()
        client = Client(1)
        client.connect(node.tcp)
        client.ask(CREATE_STREAM, CreateStream("s"))
        faults.order(Action.KILL, (Call.SYNC,), pattern="metadata/journal")
        with pytest.raises(OSError, match=r"."):
            client.ask(DELETE_STREAM, DeleteStream("s"))
        assert node.wait_end() == -9
        assert "delete_stream" not in path.read_text()
        faults.clear()
        node.restart()
        client.connect(node.tcp)
        assert client.ask(GET_STREAMS) == ()
        client.close()
        node.stop()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (line,) = [each for each in lines if each["event"] == "delete_stream"]
    assert (line["outcome"], line["user"], line["about"]) == ("ok", "iggy", "stream 's'")
    assert line["recovered"]
    assert line["op"] > 0
