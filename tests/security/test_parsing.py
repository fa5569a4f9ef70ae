"""Nothing in the sources turns bytes or text into code: seen in the syntax tree, not by words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
# Modules that run what they read.
MODULES = ("pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle")
# Calls that do; a module's by their whole name, under whatever name it was imported.
CALLS = (
    "eval",
    "exec",
    "compile",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
)
# No breach is without one of these; a source without them need not be parsed.
WORDS = re.compile("|".join([*MODULES, *(call.split(".")[-1] for call in CALLS), "shell"]))


def breaches(source: str) -> list[str]:
    """Name what is forbidden in a source, each with its line."""
    if not WORDS.search(source):
        return []
    nodes = list(ast.walk(ast.parse(source)))
    known = dict(_imported(nodes))
    found = [
        f"{node.lineno}: {module}"
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in _modules_of(node)
        if module.split(".")[0] in MODULES
    ]
    for node in nodes:
        if isinstance(node, ast.Call):
            called = _full_name(node.func, known).removeprefix("builtins.")
            if called in CALLS or (called == "importlib.import_module" and _names_a_module(node)):
                found.append(f"{node.lineno}: {called}()")
            if any(_is_shell(keyword) for keyword in node.keywords):
                found.append(f"{node.lineno}: shell=...")
    return found


def _modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names]


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Give the names that imports bind, each with what it stands for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full_name(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_full_name(node.value, known)}.{node.attr}"
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    return ""


def _names_a_module(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Constant) and each.value in MODULES for each in call.args)


def _is_shell(keyword: ast.keyword) -> bool:
    """Whether a call asks for a shell; what is not plainly false counts."""
    is_false = isinstance(keyword.value, ast.Constant) and not keyword.value.value
    return keyword.arg == "shell" and not is_false


def test_no_source_runs_what_it_reads() -> None:
    found = {str(path): breaches(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    assert len(found) > 100
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import marshal, json",
        "x = eval(y)",
        "import builtins\nbuiltins.exec(y)",
        "from builtins import eval as look\nlook(y)",
        "import os\nos.system('ls')",
        "from os import system as run\nrun('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=wanted)",
        "import yaml\nyaml.load(text)",
        "import importlib\nimportlib.import_module('pickle')",
    ],
)
def test_each_breach_is_seen(source: str) -> None:
    assert breaches(source)


@pytest.mark.parametrize(
    "source",
    [
        "import re\nre.compile('x')",
        "import yaml\nyaml.safe_load(text)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "def evaluate(x): return x\nevaluate(1)",
    ],
)
def test_what_is_harmless_passes(source: str) -> None:
    assert breaches(source) == []
