"""Groups of commands: loaded when they are called, with aliases and suggestions for typos.

```python
headrace = Lazy({"stream": Entry("headrace.cli.nouns.stream:stream", "Streams.", ("s",))}, ...)

@click.group(cls=Noun)                         # a noun, in its own module
def stream() -> None:
    \"\"\"Streams: the namespaces that topics live in.\"\"\"

@stream.command("list", short_help="List all streams.")   # its verbs; the alias `l` is added
```

A noun's module loads click and little else; code that needs the client imports it inside the
function, so that `--help` and completion start fast.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.cli.exits import CommandError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The short forms of verbs in Iggy's terminal; a noun has those of its verbs.
VERB_ALIASES = {
    "list": ("l",),
    "get": ("g",),
    "create": ("c",),
    "delete": ("d",),
    "update": ("u",),
    "purge": ("p",),
    "send": ("s",),
    "poll": ("p",),
    "flush": ("f",),
    "name": ("n",),
    "status": ("s",),
    "password": ("pwd",),
    "permissions": ("p",),
    "use": ("u",),
    "show": ("s",),
    "set": ("s", "store"),
    "metadata": ("m",),
    "join": ("j",),
    "leave": ("lv",),
}


class Entry(NamedTuple):
    """Where a command is defined, as `module:name`, and its short help."""

    where: str
    words: str
    aliases: tuple[str, ...] = ()
    extra: str = ""  # the extra of the package that its module needs


class Branch(click.Group):
    """A group with aliases that suggests similar names for an unknown one."""

    def aliases(self) -> dict[str, str]:
        """Return the command name of each alias."""
        return {}

    def words(self, ctx: click.Context) -> dict[str, str]:
        """Return the commands in order, with their short help."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return {name: each.get_short_help_str(100) for name, each in found if each is not None}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(self._no_such(ctx, args[0]))
        _, command, rest = super().resolve_command(ctx, args)
        # Usage lines show the name, not the alias that was typed.
        return None if command is None else command.name, command, rest

    def _no_such(self, ctx: click.Context, name: str) -> str:
        known = [*self.list_commands(ctx), *self.aliases()]
        close = importlib.import_module("difflib").get_close_matches(name, known)
        near = list(dict.fromkeys(self.aliases().get(each, each) for each in close))
        if near:
            return f"No such command {name!r}. Did you mean {' or '.join(map(repr, near))}?"
        return f"No such command {name!r}. There are {', '.join(self.list_commands(ctx))}."

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        make = importlib.import_module("click.shell_completion").CompletionItem
        named = [
            make(name, help=words)
            for name, words in self.words(ctx).items()
            if name.startswith(incomplete)
        ]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_rows("Commands", self.words(ctx), formatter)

    def write_rows(
        self, title: str, rows: Mapping[str, str], formatter: click.HelpFormatter
    ) -> None:
        """Write a section of the help page: each command with its aliases and short help."""
        short: dict[str, list[str]] = {}
        for alias, name in self.aliases().items():
            short.setdefault(name, []).append(alias)
        with formatter.section(title):
            formatter.write_dl(
                [(", ".join([name, *short.get(name, ())]), words) for name, words in rows.items()]
            )


class Noun(Branch):
    """A group whose commands are verbs; their usual aliases are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def aliases(self) -> dict[str, str]:
        return {alias: verb for verb in self.commands for alias in VERB_ALIASES.get(verb, ())}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases().get(cmd_name, cmd_name))


class Lazy(Branch):
    """The root: commands by sections, each loaded when it is called."""

    sections: Mapping[str, Mapping[str, Entry]] = {}

    def entries(self) -> dict[str, Entry]:
        """Return every command of every section."""
        return {name: each for rows in self.sections.values() for name, each in rows.items()}

    def aliases(self) -> dict[str, str]:
        return {alias: name for name, each in self.entries().items() for alias in each.aliases}

    def words(self, ctx: click.Context) -> dict[str, str]:
        del ctx
        return {name: each.words for name, each in self.entries().items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        entry = self.entries().get(self.aliases().get(cmd_name, cmd_name))
        return None if entry is None else load(entry)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        for title, rows in self.sections.items():
            words = {name: each.words for name, each in rows.items()}
            self.write_rows(title, words, formatter)


def load(entry: Entry) -> click.Command:
    """Return the command of an entry.

    Raises:
        CommandError: It needs an extra that is not installed.
    """
    module, _, name = entry.where.partition(":")
    try:
        command = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if not entry.extra:
            raise
        raise CommandError(
            f"this needs {error.name}, which is not installed:"
            f' pip install "headrace[{entry.extra}]"'
        ) from None
    assert isinstance(command, click.Command)
    return command
