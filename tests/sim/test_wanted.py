"""Every mark of the core is wanted by a search, or it is explained why not."""

import ast
from collections.abc import Iterator
from pathlib import Path

from headrace.sim import unwanted
from headrace.sim.groups import wanted as of_groups
from headrace.sim.nodes import wanted as of_nodes
from tests.test_tidy import ROOT, deterministic_files

WANTED = dict.fromkeys((*of_groups.PROBES_WANTED, *of_nodes.PROBES_WANTED))
EXPLAINED = dict.fromkeys((*unwanted.NEVER, *unwanted.SHOWN_BY))
# Counted by the simulator itself, from what recovery found and what planes did.
OF_THE_SIMULATOR = ("data.checkpointed", "metadata.checkpointed")


def marks_in(path: Path) -> Iterator[str]:
    """Return the names with which `hit` is called in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            for argument in node.args if node.func.attr == "hit" else ():
                yield from _texts_of(argument)


def _texts_of(argument: ast.expr) -> Iterator[str]:
    """Return the texts that an expression may be; any other expression hides a name."""
    if isinstance(argument, ast.IfExp):
        yield from _texts_of(argument.body)
        yield from _texts_of(argument.orelse)
        return
    assert isinstance(argument, ast.Constant)
    assert isinstance(argument.value, str), ast.dump(argument)
    yield argument.value


NAMED = dict.fromkeys(mark for path in deterministic_files() for mark in marks_in(path))


def test_every_mark_is_wanted_or_explained() -> None:
    assert len(NAMED) > 80
    assert [mark for mark in NAMED if mark not in WANTED and mark not in EXPLAINED] == []


def test_nothing_is_wanted_or_explained_that_is_no_mark() -> None:
    others = [mark for mark in (*WANTED, *EXPLAINED) if mark not in NAMED]
    assert [
        mark
        for mark in others
        if not mark.startswith("recovered: ") and mark not in OF_THE_SIMULATOR
    ] == []


def test_no_mark_is_both() -> None:
    assert [mark for mark in WANTED if mark in EXPLAINED] == []


def test_a_mark_that_no_search_reaches_has_a_test() -> None:
    assert [path for path in unwanted.SHOWN_BY.values() if not (ROOT / path).exists()] == []
