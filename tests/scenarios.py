"""Runs scenario files: commands, a line `----`, what they print.

`pytest --rewrite` renews what they print; the difference is reviewed like code.
"""

from collections.abc import Callable
from pathlib import Path

Run = Callable[[str], list[str]]
RULE = "----"


def check_scenario(path: Path, run: Run, *, is_rewriting: bool) -> None:
    """Run every block of a file through `run`; compare with what the file says, or renew it."""
    renewed = render(path.read_text(), run)
    if is_rewriting:
        path.write_text(renewed)
    assert path.read_text() == renewed


def render(text: str, run: Run) -> str:
    """Give the file as it should read."""
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
