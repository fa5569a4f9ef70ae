"""Finds mutants: small edits of one function of the core each.

A guard is dropped, a comparison shifted, a condition shortened, a step left out. Assertions, and
functions that do nothing but assert, are not edited: they are among what should kill a mutant. A
mutant is drawn by the hash of its name. The sample is stored by these names, so that new code does
not move it; a mutant whose code is gone is replaced by the next one of the draw.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import xxhash

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headrace"
PACKAGES = ("vsr", "storage", "partitions", "shard")
SAMPLE = 300
STEP_LEFT_OUT = "step left out"

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
    def is_statement(self) -> bool:
        """Whether its text is a statement, and not an expression."""
        return self.kind == STEP_LEFT_OUT

    @property
    def path(self) -> Path:
        """The file that it edits."""
        return SOURCE / self.module

    @property
    def edited(self) -> bytes:
        """The whole module, edited."""
        data = self.path.read_bytes()
        return data[: self.start] + self.new.encode() + data[self.end :]

    @property
    def rank(self) -> int:
        """Its place in the draw."""
        return xxhash.xxh3_64(self.name.encode()).intdigest()


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
            self._add(STEP_LEFT_OUT, node, "pass")
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


def draw_sample(stored: Collection[str] = ()) -> list[Mutant]:
    """Return the stored mutants that are still there, and new ones up to the size of the sample.

    A mutant whose name stands twice in the code counts once.
    """
    by_name: dict[str, Mutant] = {}
    for mutant in find_mutants():
        by_name.setdefault(mutant.name, mutant)
    kept = [by_name.pop(name) for name in stored if name in by_name]
    return kept + sorted(by_name.values(), key=lambda each: each.rank)[: SAMPLE - len(kept)]
