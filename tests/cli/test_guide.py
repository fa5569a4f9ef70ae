"""What the README and the guides name exists: commands with their flags, and pages."""

import re
from pathlib import Path

import click
import pytest

from headrace.cli.main import headrace

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
# In `code`, behind a prompt, at the start of a line of a block, behind a pipe or `;`.
_CALL = re.compile(r"(?:`|\$ |^|[|;] )headrace ([a-z-][^`|;#\n]*)", re.MULTILINE)
_PROSE = re.compile(r"^(is|has) ")  # a line that a node says
# What a page shows as a slip.
_SLIPS = ("tial",)


def problem_of(words: list[str]) -> str:
    """Say what is wrong with a command, given as its words; nothing if it is right."""
    command: click.Command = headrace
    context = click.Context(headrace)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name}"
        command = found
    known = {option for each in command.get_params(context) for option in each.opts}
    flags = [word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*.*", word)]
    unknown = [flag for flag in flags if flag not in known]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page: Path) -> None:
    calls = [call for call in _CALL.findall(page.read_text()) if not _PROSE.match(call)]
    wrong = {
        call: problem
        for call in calls
        if not call.startswith(_SLIPS) and (problem := problem_of(call.split()))
    }
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    places = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    near = [place for place in places if not place.startswith(("http://", "https://"))]
    assert [place for place in near if not (page.parent / place).exists()] == []


def test_a_wrong_one_is_found() -> None:
    assert problem_of(["stream", "lst"]) == "no command lst"
    assert problem_of(["dev", "--no-such"]) == "dev has no --no-such"
    assert problem_of(["stream", "list", "-o", "json"]) == ""
