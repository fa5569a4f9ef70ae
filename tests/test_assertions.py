"""How many invariants the core states: a figure that may rise and must not fall.

Only assertions of a relation count: order, sums, agreement of two values. What the type checker
could say (`isinstance`, `is not None`) does not.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "headrace"
# Assertions per function, `check()` included. Raise a figure when a package states more.
PER_FUNCTION_MIN = {"vsr": 1.10, "storage": 1.01, "partitions": 1.00, "shard": 1.00}


def states_relation(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assert):
        return False
    match node.test:
        case ast.Call(func=ast.Name(id="isinstance")):
            return False
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return False
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.Call():
            return True
        case _:
            return False


def count(source: str) -> tuple[int, int]:
    """Return how many relations are asserted, and how many functions there are."""
    nodes = list(ast.walk(ast.parse(source)))
    functions = sum(isinstance(node, ast.FunctionDef) for node in nodes)
    return sum(map(states_relation, nodes)), functions


@pytest.mark.parametrize("package", PER_FUNCTION_MIN)
def test_a_package_states_as_many_invariants_as_before(package: str) -> None:
    counts = [count(path.read_text()) for path in sorted((SOURCE / package).rglob("*.py"))]
    relations, functions = (sum(column) for column in zip(*counts, strict=True))
    assert relations / functions >= PER_FUNCTION_MIN[package], (relations, functions)


@pytest.mark.parametrize(
    "line", ["assert a <= b, 'why'", "assert not a", "assert a and b", "assert all(a)"]
)
def test_a_relation_counts(line: str) -> None:
    assert count(f"def f():\n    {line}") == (1, 1)


@pytest.mark.parametrize("line", ["assert isinstance(a, int)", "assert a is not None", "assert a"])
def test_what_types_say_does_not_count(line: str) -> None:
    assert count(f"def f():\n    {line}") == (0, 1)
