"""What the SDK's type stub offers, and what this suite uses of it, both read from source text.

Things are named as one writes them: `IggyClient.ping`, `TcpConfig(nodelay)` for an option,
`AutoCommit.When` for a variant, `Durability.PERSISTED` for a member, `Stats.hostname` for a
property. A receiver is known by the end of its name: `other_client.ping()` is the client's.
Properties are known by their name alone, whoever has it: read as an attribute, or as a key of what
`told` is compared with.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apache_iggy

STUB = Path(apache_iggy.__file__).with_suffix(".pyi")
FOLDER = Path(__file__).parent

# How a variable of a class that has methods ends.
RECEIVERS = {
    "client": "IggyClient",
    "producer": "IggyProducer",
    "consumer": "IggyConsumer",
    "message": "ReceiveMessage",
    "headers": "UserHeaders",
}
# Of the names with underscores, those that a program's own text leads to; the others (equality,
# hash, text form, length) are how Python treats the SDK's objects, and send nothing.
CALLED_UNDERSCORED = ("__new__", "__aenter__", "__aexit__")


class Offered(NamedTuple):
    """A thing of the stub, and the options that it takes if it can be called."""

    name: str
    options: tuple[str, ...]
    is_property: bool = False

    def parts(self) -> Iterator[str]:
        """Give the thing and each of its options."""
        yield self.name
        yield from (f"{self.name}({option})" for option in self.options)


def offered(text: str) -> list[Offered]:
    """Give all that a stub offers, in its order."""
    return [
        thing
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
        for thing in _offered_by(node, node.name)
    ]


def _offered_by(owner: ast.ClassDef, path: str) -> Iterator[Offered]:
    is_enum = any("Enum" in ast.unparse(base) for base in owner.bases)
    for item in owner.body:
        if isinstance(item, ast.ClassDef):
            yield from _offered_by(item, f"{path}.{item.name}")
        elif isinstance(item, ast.Assign) and is_enum:
            yield Offered(f"{path}.{ast.unparse(item.targets[0])}", ())
        elif isinstance(item, ast.FunctionDef):
            yield from _offered_function(item, path)


def _offered_function(item: ast.FunctionDef, path: str) -> Iterator[Offered]:
    decorators = [ast.unparse(decorator) for decorator in item.decorator_list]
    if "property" in decorators:
        if not item.name.startswith("_"):
            yield Offered(f"{path}.{item.name}", (), is_property=True)
        return
    if item.name.startswith("_") and item.name not in CALLED_UNDERSCORED:
        return
    arguments = [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]
    names = [each.arg for each in arguments]
    if "staticmethod" not in decorators:
        names = names[1:]
    name = path if item.name == "__new__" else f"{path}.{item.name}"
    options = () if item.name.startswith("__a") else tuple(names)  # Python's own text calls those
    yield Offered(name, options)


def used(things: list[Offered], folder: Path = FOLDER) -> dict[str, list[str]]:
    """Give each part of the things that the modules of a folder use, with those modules."""
    reader = _Reader(things)
    for path in sorted(folder.glob("*.py")):
        reader.read(path.stem, path.read_text())
    return reader.found


class _Reader:
    def __init__(self, things: list[Offered]) -> None:
        self.found: dict[str, list[str]] = {}
        self._options = {thing.name: thing.options for thing in things}
        self._properties: dict[str, list[str]] = {}
        for thing in things:
            if thing.is_property:
                self._properties.setdefault(thing.name.rpartition(".")[2], []).append(thing.name)

    def read(self, module: str, text: str) -> None:
        for node in ast.walk(ast.parse(text)):
            for part in self._parts(node):
                modules = self.found.setdefault(part, [])
                if module not in modules:
                    modules.append(module)

    def _parts(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None and (name := _owner(item.optional_vars)):
                    yield f"{name}.__aenter__"
                    yield f"{name}.__aexit__"
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant):
                    yield from self._properties.get(str(key.value), ())
        elif isinstance(node, ast.Attribute):
            yield from self._properties.get(node.attr, ())
            if (name := ast.unparse(node)) in self._options:
                yield name

    def _call(self, node: ast.Call) -> Iterator[str]:
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute) and (owner := _owner(node.func.value)):
            name = f"{owner}.{node.func.attr}"
        if name not in self._options:
            return
        yield name
        options = self._options[name]
        for option, argument in zip(options, node.args, strict=False):
            assert not isinstance(argument, ast.Starred), f"{ast.unparse(node)} hides its options"
            yield f"{name}({option})"
        for keyword in node.keywords:
            assert keyword.arg is not None, f"{ast.unparse(node)} hides its options"
            yield f"{name}({keyword.arg})"


def _owner(receiver: ast.expr) -> str | None:
    """Give the class of a receiver by the end of its name."""
    name = ast.unparse(receiver)
    last = name.rpartition(".")[2].rpartition("_")[2]
    return RECEIVERS.get(last) if name.replace(".", "").isidentifier() else None
