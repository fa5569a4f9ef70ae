"""Named nodes with their credentials, in one file of the user.

```toml
current = "prod"

[contexts.prod]
address = "10.0.0.7:8090"
token = "..."
token_name = "cli-5f0c9a31"
token_expires_at = 1790000000000000
```

The file is `contexts.toml` in $HEADRACE_HOME, else in $XDG_CONFIG_HOME/headrace, else in
~/.config/headrace. It holds secrets: it is replaced atomically, and only its owner can read it. The
context `default` always exists, with the default address and nothing else.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headrace.cli.exits import CommandError, Exit

DEFAULT = "default"
FILE_NAME = "contexts.toml"
SECRETS = ("password", "token")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_READABLE_BY_OTHERS = 0o077


@dataclass(frozen=True)
class Context:
    """The address of a node and the credentials for it; None means "as without a context".

    A token created by `login` has its name, by which `logout` revokes it, and its expiry in
    microseconds since 1970 (0: never).
    """

    address: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_name: str | None = None
    token_expires_at: int | None = None


@dataclass(frozen=True)
class Contexts:
    """All contexts, and the name of the current one."""

    current: str = DEFAULT
    named: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Return one context.

        Raises:
            CommandError: It does not exist.
        """
        if name in self.named or name == DEFAULT:
            return self.named.get(name, Context())
        known = ", ".join(self.names())
        raise CommandError(f"no context {name!r}; there are {known}", Exit.NOT_FOUND)

    def names(self) -> list[str]:
        """Return every name, `default` first."""
        return list(dict.fromkeys([DEFAULT, *sorted(self.named)]))

    def use(self, name: str) -> "Contexts":
        """Return a copy with another current context, which must exist."""
        self.get(name)
        return replace(self, current=name)

    def put(self, name: str, context: Context) -> "Contexts":
        """Return a copy with one context added or replaced."""
        return replace(self, named={**self.named, name: context})

    def without(self, name: str) -> "Contexts":
        """Return a copy without one context; if it was current, `default` becomes current."""
        rest = {each: context for each, context in self.named.items() if each != name}
        return Contexts(DEFAULT if self.current == name else self.current, rest)


def check_name(name: str) -> str:
    """Return the name if it is valid for a context.

    Raises:
        CommandError: It is not valid.
    """
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{name!r} is no name of a context: write letters, digits, . _ and -, at most 64",
            Exit.USAGE,
        )
    return name


def find_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the file, whether it exists or not.

    Raises:
        CommandError: There is no home folder.
    """
    home = environment.get("HEADRACE_HOME")
    if home:
        return Path(home) / FILE_NAME
    config = environment.get("XDG_CONFIG_HOME")
    try:
        folder = Path(config) if config else Path.home() / ".config"
    except RuntimeError:  # a user that the machine does not know, such as in a container
        raise CommandError("there is no home folder: set HEADRACE_HOME to one") from None
    return folder / "headrace" / FILE_NAME


def load_contexts(environment: Mapping[str, str]) -> Contexts:
    """Read the file; without a file there is only `default`.

    Raises:
        CommandError: It cannot be read, or other users could read it.
    """
    path = find_file(environment)
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            document = tomllib.load(file)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from None
    if mode & _READABLE_BY_OTHERS:
        raise CommandError(f"{path} holds secrets and others may use it: chmod 600 {path}")
    return _read_document(path, document)


def save_contexts(environment: Mapping[str, str], contexts: Contexts) -> Path:
    """Replace the file atomically, readable by its owner only; return its path."""
    path = find_file(environment)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f".{FILE_NAME}.{os.getpid()}")
    made.unlink(missing_ok=True)  # left by a killed process with the same id
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_write_document(contexts))
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return path


def _read_document(path: Path, document: dict[str, Any]) -> Contexts:
    current, named = document.pop("current", DEFAULT), document.pop("contexts", {})
    problems = [f"{key} is not known" for key in document]
    if not isinstance(named, dict):
        problems.append("contexts is no table")
        named = {}
    made = {name: _read_context(name, table, problems) for name, table in named.items()}
    if current != DEFAULT and current not in made:
        problems.append(f"current = {current!r} is none of its contexts")
    if problems:
        raise CommandError(f"{path}: {'; '.join(problems)}")
    return Contexts(current, made)


def _read_context(name: str, table: object, problems: list[str]) -> Context:
    kinds: dict[str, type] = {each.name: str for each in fields(Context)}
    kinds["token_expires_at"] = int
    if not isinstance(table, dict):
        problems.append(f"contexts.{name} is no table")
        return Context()
    wrong = [
        key for key, value in table.items() if key not in kinds or type(value) is not kinds[key]
    ]
    if wrong:
        problems.append(
            f"contexts.{name} has {', '.join(wrong)}, which is not known or of a wrong kind"
        )
        return Context()
    return Context(**table)


def _write_document(contexts: Contexts) -> str:
    lines = [f"current = {_write_value(contexts.current)}"]
    for name, context in sorted(contexts.named.items()):
        lines += ["", f"[contexts.{_write_value(name)}]"]
        lines += [
            f"{key} = {_write_value(value)}"
            for key, value in asdict(context).items()
            if value is not None
        ]
    return "\n".join(lines) + "\n"


def _write_value(value: str | int) -> str:
    """Return TOML; a JSON string is valid TOML except for DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
