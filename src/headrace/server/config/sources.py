"""Where configuration comes from: a TOML file, the environment, flags.

Each source returns its values, unread, and its errors as a whole: unknown keys, a file that cannot
be read, a secret that others can read.
"""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.base.nearest import hint_nearest
from headrace.server.config.sections import SECTIONS, SETTINGS

FILE_BYTES_MAX = 1 << 20
VARIABLE_PREFIX = "HEADRACE_"
# Variables of the client commands, and those that Kubernetes sets for a service named headrace.
_NOT_OURS = re.compile(
    r"HEADRACE_(ADDRESS|USERNAME|PASSWORD|TOKEN|HOME|COMPLETE"
    r"|SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\w+)?)"
)
_SHOWN_MAX = 80


class Problem(msgspec.Struct, frozen=True):
    """One error: the key, or the file, and a sentence about it."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Given(msgspec.Struct, frozen=True):
    """A value as given, and its origin; its repr hides the value, which may be a secret."""

    raw: object
    origin: str

    def __repr__(self) -> str:
        return f"Given(..., {self.origin!r})"


class Source(msgspec.Struct, frozen=True):
    """The values and errors of one source."""

    given: dict[str, Given]
    problems: list[Problem]


def read_file(file: Path | None) -> Source:
    """Read the configuration file, if there is one."""
    source = Source({}, [])
    if file is None:
        return source
    try:
        table, is_open_to_all = _read_table(file)
    except (OSError, ValueError) as error:
        source.problems.append(Problem(str(file), f"{file}: {_reason(error)}"))
        return source
    for section, keys in table.items():
        _take_section(source, f"file {file}", section, keys)
    secrets = [path for path in source.given if SETTINGS[path].setting.is_secret]
    if is_open_to_all and secrets:
        source.problems.append(
            Problem(
                str(file),
                f"{file}: holds {secrets[0]} and is readable for everybody: chmod 600 {file}",
            )
        )
    return source


def read_environment(environment: Mapping[str, str]) -> Source:
    """Select our variables; of two spellings of one key, `HEADRACE_` wins."""
    source = Source({}, [])
    for declared in SETTINGS.values():
        for name in (*reversed(declared.setting.older_names), declared.variable):
            if name in environment:
                source.given[declared.path] = Given(environment[name], f"environment {name}")
    known = {declared.variable: declared.path for declared in SETTINGS.values()}
    for name in sorted(environment):
        is_ours = name.startswith(VARIABLE_PREFIX) and not _NOT_OURS.fullmatch(name)
        if is_ours and name not in known:
            # Without the common prefix, or all names would be similar.
            bare = [each.removeprefix(VARIABLE_PREFIX) for each in known]
            hint = hint_nearest(name.removeprefix(VARIABLE_PREFIX), bare, prefix=VARIABLE_PREFIX)
            source.problems.append(Problem(name, f"environment {name}: no such key{hint}"))
    return source


def read_flags(flags: Mapping[str, str]) -> Source:
    """Take the values of the command line, by path of their key."""
    assert all(path in SETTINGS for path in flags)
    return Source(
        {
            path: Given(text, f"flag {SETTINGS[path].setting.flag or path}")
            for path, text in flags.items()
        },
        [],
    )


def shorten(text: str, characters_max: int = _SHOWN_MAX) -> str:
    """Return a text shortened to fit one line of an error."""
    line = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return line if len(line) <= characters_max else f"{line[: characters_max - 3]}..."


def _read_table(file: Path) -> tuple[dict[str, object], bool]:
    """Return the file's table, and whether everybody may read the file."""
    # Do not block on a pipe without a writer; the mode is that of the opened file.
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no file")
        data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(data.decode()), bool(status.st_mode & stat.S_IROTH)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"is not TOML: {shorten(str(error))}"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _take_section(source: Source, origin: str, section: str, keys: object) -> None:
    if section not in SECTIONS:
        hint = hint_nearest(section, (*SECTIONS, *SETTINGS))
        sentence = f"{shorten(section)} ({origin}): no such section{hint}"
        source.problems.append(Problem(section, sentence))
        return
    if not isinstance(keys, dict):
        sentence = f"{section} ({origin}): is a section and holds keys, no value"
        source.problems.append(Problem(section, sentence))
        return
    for key, raw in keys.items():
        path = f"{section}.{key}"
        if path in SETTINGS:
            source.given[path] = Given(raw, origin)
        else:
            sentence = f"{shorten(path)} ({origin}): no such key{hint_nearest(path, SETTINGS)}"
            source.problems.append(Problem(path, sentence))
