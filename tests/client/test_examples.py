"""The examples in docstrings and in the guide: they run as they stand, on a real node."""

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

import headrace
from headrace.client.calls import groups, messages, streams, system, users
from headrace.client.produce import batching
from headrace.client.sync import client as sync_client
from headrace.client.sync import consumer, producer
from tests.node import Node

pytestmark = pytest.mark.slow

MODULES = (streams, groups, users, system, messages, sync_client, producer, consumer, batching)
GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide" / "python.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def find_examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [example for module in MODULES for example in _of(finder, module)]
    assert len(found) > 40
    return found


def _of(finder: doctest.DocTestFinder, module: ModuleType) -> list[doctest.DocTest]:
    # Methods made of calls have their docstrings from there: `module` keeps those out here.
    return [each for each in finder.find(module, module=module) if each.examples]


@pytest.mark.parametrize("example", find_examples(), ids=lambda example: example.name)
def test_the_example_of_a_docstring(
    example: doctest.DocTest, client: headrace.Client, node: Node
) -> None:
    example.globs = {"client": client, "headrace": headrace, "address": str(node.tcp)}
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def guide_blocks() -> list[str]:
    return _BLOCK.findall(GUIDE.read_text())


@pytest.mark.parametrize("index", range(len(guide_blocks())))
def test_the_example_of_the_guide(
    index: int, client: headrace.Client, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block runs by itself, against a node that has the topic `shop/orders`."""
    monkeypatch.setenv("HEADRACE_ADDRESS", str(node.tcp))
    client.create_stream("shop")
    client.create_topic("shop/orders", partitions=2)
    client.send("shop/orders", ["first order"], partition=0)
    code = compile(guide_blocks()[index], f"{GUIDE.name}, block {index}", "exec")
    exec(code, {"__name__": "guide"})
