"""Runs scenario files: commands, a line `----`, what they print.

A file lies in `tests/AREA/scenarios/`; the class `Commands` of `tests/AREA/commands.py` carries its
commands out, a fresh one for each file. A line `# shows: NAME, NAME` names planted bugs with which
the file must fail (`tests/planted/`). `pytest --rewrite` renews what the commands print; the
difference is reviewed like code.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

Run = Callable[[str], list[str]]
RULE = "----"
SHOWS = "# shows: "
TESTS = Path(__file__).parent
FILES = sorted(
    path
    for commands in TESTS.glob("*/commands.py")
    for path in (commands.parent / "scenarios").glob("*.txt")
)


def name_of(path: Path) -> str:
    """Return the name of a scenario: its area and its own."""
    return f"{path.parent.parent.name}/{path.stem}"


def open_stage(path: Path) -> Run:
    """Return what carries out the commands of a scenario, at its beginning."""
    run: Run = import_module(f"tests.{path.parent.parent.name}.commands").Commands().run
    return run


def bugs_shown(path: Path) -> list[str]:
    """Return the names of the planted bugs with which a scenario fails."""
    return [
        name.strip()
        for line in path.read_text().splitlines()
        if line.startswith(SHOWS)
        for name in line.removeprefix(SHOWS).split(",")
    ]


def check_scenario(path: Path, run: Run, *, is_rewriting: bool) -> None:
    """Run every block of a file through `run`; compare with what the file says, or renew it."""
    renewed = render(path.read_text(), run)
    if is_rewriting:
        path.write_text(renewed)
    assert path.read_text() == renewed


def render(text: str, run: Run) -> str:
    """Return the file as it should read."""
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        commands, found, _ = block.partition(f"\n{RULE}")
        if not found and all(line.startswith("#") for line in block.splitlines()):
            blocks.append(block)
            continue
        printed = [
            line
            for command in commands.splitlines()
            if command and not command.startswith("#")
            for line in run(command)
        ]
        blocks.append("\n".join([commands, RULE, *printed]))
    return "\n\n".join(blocks) + "\n"
