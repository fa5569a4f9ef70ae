"""What the import linter cannot see."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headrace"
DETERMINISTIC = (
    "kernel",
    "base",
    "wire",
    "ports",
    "vsr",
    "groups",
    "metadata",
    "partitions",
    "storage",
    "shard",
)
LINES_MAX = 800
# Their order, or their value, differs from process to process; or they reach the world.
FORBIDDEN_CALLS = ("open", "hash", "id", "set", "frozenset", "input", "print", "__import__")
RULE_ID = re.compile(
    r"\b(?:(?:SH|MD|PT|RC|CG|VS|SI|FM|SE)-[0-9]+[a-z]?|(?:PR|DK|NW|CK|CL|CR|GR)[0-9]+"
    r"|O[1-9](?:\.[0-9]+)?|D(?:[1-9]|1[0-2])|[HPR][0-9]{1,2})\b"
)


def python_files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def deterministic_files() -> list[Path]:
    return list(python_files(*(SOURCE / package for package in DETERMINISTIC)))


def breaches(source: str) -> list[str]:
    """Name what deterministic code must not do, with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            found.append(f"{node.lineno}: async")
        if isinstance(node, ast.Set | ast.SetComp):
            found.append(f"{node.lineno}: a set has no order")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in FORBIDDEN_CALLS
        ):
            found.append(f"{node.lineno}: {node.func.id}()")
    return found


@pytest.mark.parametrize(
    "path", deterministic_files(), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_deterministic_code_touches_nothing(path: Path) -> None:
    assert breaches(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "async def f(): ...",
        "x = {1, 2}",
        "x = {n for n in y}",
        "x = hash(y)",
        "x = open('f')",
        "x = set(y)",
        "x = id(y)",
    ],
)
def test_each_breach_is_seen(line: str) -> None:
    assert breaches(line)


def test_no_file_holds_two_ideas() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in python_files(SOURCE, ROOT / "tests")
        if (count := len(path.read_text().splitlines())) > LINES_MAX
    }
    assert long == {}


def test_every_rule_named_in_code_stands_in_the_list() -> None:
    known = dict.fromkeys(RULE_ID.findall((ROOT / "docs" / "rules.md").read_text()))
    missing = {
        f"{path.relative_to(ROOT)}: {rule}"
        for path in (*python_files(SOURCE, ROOT / "tests"), *SOURCE.rglob("*.c"))
        for rule in RULE_ID.findall(path.read_text())
        if rule not in known and path != Path(__file__)
    }
    assert missing == set()


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        str(path)
        for path in sorted(SOURCE.rglob("__init__.py"))
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_the_project_is_whole_without_its_surroundings() -> None:
    """No file names a place outside the project."""
    outside = re.compile(r"\.\./shared|/work/|/root/|/opt/")
    named = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.rglob("*"))
        if path.suffix in (".py", ".md", ".toml", ".c", ".txt", ".lock", ".in", ".yml")
        and not any(part.startswith(".venv") or part == "build" for part in path.parts)
        and path != Path(__file__)
        and outside.search(path.read_text())
    ]
    assert named == []
