"""No command without its words, its tests and its place in the guide."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.cli.main import headrace
from headrace.cli.tree import Branch, Noun, load
from tests.cli.leaves import LEAVES

TESTS = Path(__file__).parent
GUIDE = TESTS.parent.parent / "docs" / "guide" / "terminal.md"
# What shows nothing that could be a table or JSON, or has forms of its own, with its own tests.
OTHERWISE = {
    "dev": "test_node.py",
    "serve": "test_node.py",
    "ping": "test_ping.py",
    "completion": "test_completion.py",
    "produce": "test_produce.py",
    "tail": "test_tail.py",
    "stats": "test_stats.py",
    "me": "test_me.py",
    "options": "test_options.py",
    "doctor": "test_doctor.py",
    "config": "test_config.py",
    "pipeline": "../pipelines/test_cli.py",
}


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Give every command that is no group, by what one types."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for verb in command.list_commands(click.Context(command)):
        inner = command.get_command(click.Context(command), verb)
        assert inner is not None
        yield from leaves(f"{name} {verb}", inner)


def all_leaves() -> dict[str, click.Command]:
    """Give all of them but those of extras that may not be installed."""
    return {
        name: leaf
        for noun, entry in headrace.entries().items()
        if not entry.extra
        for name, leaf in leaves(noun, load(entry))
    }


def test_every_leaf_is_tested() -> None:
    ours = [name for name in all_leaves() if name.split()[0] not in OTHERWISE]
    assert sorted(ours) == sorted(LEAVES)


@pytest.mark.parametrize("noun", [n for n in OTHERWISE if not headrace.entries()[n].extra])
def test_what_is_tested_otherwise_has_its_tests(noun: str) -> None:
    assert (TESTS / OTHERWISE[noun]).is_file()


def test_every_command_says_what_it_does() -> None:
    silent = [
        name
        for name, leaf in all_leaves().items()
        if not (leaf.short_help and leaf.help and len(leaf.help) > len("Do it."))
    ]
    assert silent == []


def test_every_verb_has_an_example_of_itself() -> None:
    known = all_leaves()
    assert [
        name for name in LEAVES if f"Example: headrace {name}" not in (known[name].help or "")
    ] == []


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{name} {option.opts}"
        for name, leaf in all_leaves().items()
        for option in leaf.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert silent == []


def test_the_root_describes_commands_as_they_do() -> None:
    for name, entry in headrace.entries().items():
        if not entry.extra:
            command = load(entry)
            assert (command.name, command.short_help) == (name, entry.words)


def test_aliases_of_a_noun_name_one_verb_each() -> None:
    for name, entry in headrace.entries().items():
        noun = None if entry.extra else load(entry)
        if isinstance(noun, Noun):
            wanted = [alias for alias in noun.aliases() if alias in noun.commands]
            assert wanted == [], name


def test_every_noun_of_ours_forgives_a_slip() -> None:
    groups = [load(entry) for entry in headrace.entries().values() if not entry.extra]
    stern = [
        group.name
        for group in groups
        if isinstance(group, click.Group) and not isinstance(group, Branch)
    ]
    assert stern == []


def test_the_guide_has_every_command_and_no_other() -> None:
    row = r"^\| `headrace ([a-z]+(?: [a-z][a-z-]*)?)[^`]*` \| (.*) \|$"
    rows = re.findall(row, GUIDE.read_text(), re.MULTILINE)
    assert dict(rows) == {name: leaf.short_help for name, leaf in all_leaves().items()}
