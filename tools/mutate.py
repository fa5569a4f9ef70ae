"""Makes mutants of the core and looks which of them no test sees.

    python -m tools.mutate                      # the next part of the sample, for an hour at most
    python -m tools.mutate --minutes 10 --jobs 2
    python -m tools.mutate --list               # survivors by name

A mutant is one small edit of one function of `vsr`, `storage`, `partitions` or `shard`: a guard
dropped, a comparison shifted, a condition shortened, a step left out. The sample is drawn by the
hash of the mutant's name, so that it stays the same while the code around it changes. A mutant runs
against the tests of its package and all scenarios, then against seeds of the simulators; whoever
fails first has killed it. Verdicts are kept in `tests/planted/mutants.csv`, so the next run goes on
where this one ended. A survivor is a scenario that is missing, or is explained in that file.
"""

import argparse
import ast
import csv
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import xxhash

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headrace"
RECORDS = ROOT / "tests" / "planted" / "mutants.csv"
PACKAGES = ("vsr", "storage", "partitions", "shard")
SAMPLE = 300
TIMEOUT_SECONDS = 240
SURVIVED = "survived"
# Tests outside the package that drive its code, where the package has few of its own.
ALSO = {"vsr": ("tests/shard",), "storage": ("tests/shard",), "partitions": (), "shard": ()}

_SHIFTED: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class Mutant(msgspec.Struct, frozen=True):
    """One edit: the text from `start` to `end` of a module becomes `new`."""

    module: str  # path below src/headrace
    function: str
    kind: str
    old: str
    start: int
    end: int
    new: str

    @property
    def name(self) -> str:
        """What it is called, in whatever file of its package and whatever stands around it."""
        return f"{self.package}: {self.function}: {self.kind}: {' '.join(self.old.split())}"

    @property
    def package(self) -> str:
        """The package of its function."""
        return self.module.split("/")[0]

    @property
    def rank(self) -> int:
        """Its place in the draw."""
        return xxhash.xxh3_64(self.name.encode()).intdigest()


class Verdict(msgspec.Struct, frozen=True):
    """Who killed a mutant, or `SURVIVED`; and why a survivor does no harm, if it does none."""

    name: str
    killed_by: str
    explanation: str = ""


class _Finder(ast.NodeVisitor):
    """Collects the mutants of one module."""

    def __init__(self, module: str, text: str) -> None:
        self.found: list[Mutant] = []
        self._module = module
        self._data = text.encode()
        self._lines = [0]
        for line in self._data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._function: list[str] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not _is_check(node):
            self._enter(node)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self._function.append(node.name)
        for each in node.body:
            self.visit(each)
        self._function.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions alone: they are among what should kill."""

    def visit_If(self, node: ast.If) -> None:
        leaves = isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
        if leaves and not node.orelse and not isinstance(node.test, ast.NamedExpr):
            self._add("guard dropped", node.test, "False")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and type(node.ops[0]) in _SHIFTED:
            sign = _SIGNS[type(node.ops[0])]
            old = self._segment(node)
            left = len(self._segment(node.left).encode())
            at = old.encode().find(sign.encode(), left)
            new = old.encode()
            new = new[:at] + _SHIFTED[type(node.ops[0])].encode() + new[at + len(sign) :]
            self._add("comparison shifted", node, new.decode())
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        joiner = " and " if isinstance(node.op, ast.And) else " or "
        if not any(isinstance(each, ast.NamedExpr) for each in ast.walk(node)):
            for index in range(len(node.values)):
                kept = [self._segment(each) for at, each in enumerate(node.values) if at != index]
                self._add(f"condition {index + 1} left out", node, f"({joiner.join(kept)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if is_one and isinstance(node.op, ast.Add | ast.Sub):
            self._add("one left out", node, f"({self._segment(node.left)})")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and "probes" not in self._segment(node):
            self._add("step left out", node, "pass")
        self.generic_visit(node)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _segment(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._data[start:end].decode()

    def _add(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        start, end = self._span(node)
        function = ".".join(self._function)
        old = self._segment(node)
        self.found.append(Mutant(self._module, function, kind, old, start, end, new))


def _is_check(node: ast.FunctionDef) -> bool:
    """Whether a function only asserts, in tests and the simulator: it is among what kills."""
    kinds = [type(each) for each in ast.walk(node)]
    is_named = node.name.lstrip("_").startswith("check_")
    return node.name == "check" or (is_named and ast.Assert in kinds and ast.Raise not in kinds)


def find_mutants() -> Iterator[Mutant]:
    """Yield every mutant of the core."""
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            text = path.read_text()
            finder = _Finder(str(path.relative_to(SOURCE)), text)
            finder.visit(ast.parse(text))
            yield from finder.found


def draw_sample() -> list[Mutant]:
    """Return the sample; a mutant whose name stands twice in the code counts once."""
    by_name: dict[str, Mutant] = {}
    for mutant in find_mutants():
        by_name.setdefault(mutant.name, mutant)
    return sorted(by_name.values(), key=lambda each: each.rank)[:SAMPLE]


def judge(mutant: Mutant) -> Verdict:
    """Run tests, scenarios and seeds against one mutant, in a copy of the source."""
    with tempfile.TemporaryDirectory(prefix="headrace-mutant-") as folder:
        copy = Path(folder) / "headrace"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / mutant.module
        data = path.read_bytes()
        path.write_bytes(data[: mutant.start] + mutant.new.encode() + data[mutant.end :])
        for lane, command in _lanes(mutant.package).items():
            ended = _run(command, folder)
            if ended != "passed":
                return Verdict(mutant.name, lane if ended == "failed" else f"{lane}, {ended}")
    return Verdict(mutant.name, SURVIVED)


def _lanes(package: str) -> dict[str, list[str]]:
    fast = ["pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    seeds = ["--tree", "--jobs", "1", "--seeds"]
    return {
        "tests": [*fast, f"tests/{package}"],
        "scenarios": [*fast, "tests/test_scenarios.py", *ALSO[package]],
        "seeds of groups": ["tools.simulate", *seeds, "40"],
        "seeds of nodes": ["tools.simulate", "--nodes", *seeds, "25"],
    }


def _run(command: list[str], folder: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    try:
        ended = subprocess.run(  # noqa: S603 - our own modules
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    return "passed" if ended.returncode == 0 else "failed"


def read_verdicts() -> dict[str, Verdict]:
    """Return what is recorded, by the names of the mutants."""
    if not RECORDS.exists():
        return {}
    with RECORDS.open(newline="") as file:
        return {row["name"]: msgspec.convert(row, Verdict) for row in csv.DictReader(file)}


def write_verdicts(verdicts: dict[str, Verdict]) -> None:
    """Record all verdicts, by name."""
    with RECORDS.open("w", newline="") as file:
        writer = csv.DictWriter(file, Verdict.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.to_builtins(verdicts[name]) for name in sorted(verdicts))


def show(verdicts: dict[str, Verdict]) -> None:
    """Print the sums, and the survivors that nobody has explained."""
    for killer, count in Counter(each.killed_by for each in verdicts.values()).most_common():
        print(f"{count:4} {killer}")
    for each in verdicts.values():
        if each.killed_by == SURVIVED:
            print(f"{each.name}\n    {each.explanation or 'not explained'}")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="judge survivors again too")
    parser.add_argument("--list", action="store_true", help="print the verdicts and do nothing")
    arguments = parser.parse_args()
    sample = draw_sample()
    known = read_verdicts()
    verdicts = {each.name: known[each.name] for each in sample if each.name in known}
    if not arguments.list:
        _judge_all(sample, verdicts, arguments)
    show(verdicts)
    print(f"{len(verdicts)} of {len(sample)} judged")


def _judge_all(
    sample: list[Mutant], verdicts: dict[str, Verdict], arguments: argparse.Namespace
) -> None:
    waiting = [
        each
        for each in sample
        if each.name not in verdicts
        or (arguments.again and verdicts[each.name].killed_by == SURVIVED)
    ]
    ends = time.monotonic() + 60 * arguments.minutes
    with multiprocessing.Pool(arguments.jobs) as pool:
        for verdict in pool.imap_unordered(judge, waiting):
            old = verdicts.get(verdict.name)
            explanation = old.explanation if old and verdict.killed_by == SURVIVED else ""
            verdicts[verdict.name] = msgspec.structs.replace(verdict, explanation=explanation)
            write_verdicts(verdicts)
            print(f"{verdict.killed_by:16} {verdict.name}", flush=True)
            if time.monotonic() > ends:
                break


if __name__ == "__main__":
    main()
