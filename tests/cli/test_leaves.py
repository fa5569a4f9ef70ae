"""Every verb of every noun, as table, as JSON and when it fails, against a real node.

Share: check, about 20 s.
"""

import json
import os

import pytest

import headrace
from headrace.cli.connect.contexts import Context, Contexts, save_contexts
from headrace.cli.exits import Exit
from tests.cli.conftest import Terminal
from tests.cli.leaves import LEAVES, Wanted

pytestmark = pytest.mark.slow

ADA_PASSWORD = "secret-of-ada"


@pytest.fixture
def stage(clean: headrace.Client, terminal: Terminal, request: pytest.FixtureRequest) -> Terminal:
    """Make what `tests/cli/leaves.py` describes."""
    clean.create_stream("shop")
    clean.create_topic("shop/orders", partitions=2)
    clean.send("shop/orders", ["one", "two", "three"], partition=0)
    clean.create_group("shop/orders", "billing")
    clean.store_offset("shop/orders", 0, 0, group="billing")
    clean.store_offset("shop/orders", 0, 1, consumer="report")
    clean.create_token("laptop")
    name: str = request.getfixturevalue("name")
    if "ada" in f"{LEAVES[name].arguments} {LEAVES[name].failure} {LEAVES[name].table}":
        clean.create_user("ada", ADA_PASSWORD)  # a hash takes longer than all the rest
    prod = Context("10.0.0.7:8090", "ada", "secret")
    save_contexts(os.environ, Contexts(named={"prod": prod}))
    for command in LEAVES[name].before:
        assert terminal(*command.split()).code == Exit.OK
    return terminal


def arguments(name: str, text: str, owner: headrace.Client) -> list[str]:
    number = owner.get_me().client.client_id
    return [*name.split(), *text.format(owner=number).split()]


def differs(found: object, wanted: Wanted, where: str = "$") -> str:
    """Say where JSON is not what is wanted; nothing if it is."""
    if wanted is ...:
        return ""
    if isinstance(wanted, dict) and isinstance(found, dict):
        if list(found) != list(wanted):
            return f"{where} has {list(found)}, wanted {list(wanted)}"
        return "".join(differs(found[key], wanted[key], f"{where}.{key}") for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = zip(found, wanted, strict=True)
        return "".join(differs(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(pairs))
    return "" if found == wanted and type(found) is type(wanted) else f"{where} is {found!r}"


@pytest.mark.parametrize("name", LEAVES)
def test_table(name: str, stage: Terminal, owner: headrace.Client) -> None:
    told = stage(*arguments(name, LEAVES[name].arguments, owner))
    assert told.code == Exit.OK, told.err
    shown = told.out or told.err
    assert "" in (told.out, told.err)  # data or a sentence, never both
    for words in LEAVES[name].table:
        assert words in shown


@pytest.mark.parametrize("name", LEAVES)
def test_json(name: str, stage: Terminal, owner: headrace.Client) -> None:
    told = stage(*arguments(name, LEAVES[name].arguments, owner), "-o", "json")
    assert (told.code, told.err) == (Exit.OK, "")
    assert differs(json.loads(told.out), LEAVES[name].json) == ""


@pytest.mark.parametrize("name", LEAVES)
def test_failure(name: str, stage: Terminal, owner: headrace.Client) -> None:
    leaf = LEAVES[name]
    told = stage(*arguments(name, leaf.failure, owner))
    assert (told.code, told.out) == (leaf.code, "")
    assert leaf.words in told.err
    if leaf.code != Exit.USAGE:
        assert told.err.startswith("headrace: ")
        assert told.err.count("\n") == 1
