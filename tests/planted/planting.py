"""Plants bugs in the code that ships, to prove that scenarios and the simulator see them.

A bug is what a careless engineer would have written: an edit of the source of one or two functions
of the code that ships. While it is planted these functions run the edited code, wherever they were
imported; afterwards they are as before. An edit whose old text is not found once is an error: a bug
that no longer fits the code does not pass for one that is planted.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """One change of one function: this text, found once in its source, becomes that."""

    function: Callable[..., Any]
    old: str
    new: str


class Bug(NamedTuple):
    """A bug: its name, what its author thought, and what they changed.

    Only of a bug that stalls it counts as seen when the healed core does not converge. Any other
    bug changes the course of a run too, and may so meet a stall that it has not made.
    """

    name: str
    thought: str
    edits: tuple[Edit, ...]
    is_stall: bool


@contextmanager
def plant(bug: Bug) -> Iterator[None]:
    """Have the bug in the code that ships, until the context ends."""
    edited: dict[FunctionType, str] = {}
    for edit in bug.edits:
        function = edit.function
        assert isinstance(function, FunctionType)
        source = edited.get(function) or textwrap.dedent(inspect.getsource(function))
        assert source.count(edit.old) == 1, f"{bug.name}: {edit.old!r} in {function.__qualname__}"
        edited[function] = source.replace(edit.old, edit.new)
    compiled = {function: _compile(function, source) for function, source in edited.items()}
    before = {function: function.__code__ for function in edited}
    for function, code in compiled.items():
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def _compile(function: FunctionType, source: str) -> CodeType:
    """Give the code of an edited function, at the lines of the first one."""
    first = function.__code__
    lines = "\n" * (first.co_firstlineno - 1)
    module = compile(lines + source, first.co_filename, "exec")
    for code in module.co_consts:
        if isinstance(code, CodeType) and code.co_name == function.__name__:
            assert code.co_freevars == first.co_freevars
            return code
    raise AssertionError(f"{function.__qualname__} is not in its own source")


def bug(name: str, thought: str, *edits: Edit, is_stall: bool = False) -> Bug:
    """Return a bug."""
    return Bug(name, thought, edits, is_stall)
