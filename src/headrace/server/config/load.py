"""Loads the configuration of a node: TOML file < environment < flags; reports all its errors.

```
sources    the given values, unread          sources
read       each value by its kind            kinds
relate     rules between keys                relations
```

Every key is declared once, in `sections`.
"""

from collections.abc import Mapping
from pathlib import Path

from headrace.server.config.relations import Relation, broken_relations
from headrace.server.config.sections import (
    SECTIONS,
    SETTINGS,
    Declared,
    Profile,
    ServerConfig,
)
from headrace.server.config.sources import (
    Given,
    Problem,
    read_environment,
    read_file,
    read_flags,
    shorten,
)

__all__ = ["ConfigError", "Problem", "Profile", "ServerConfig", "load_config"]

_REASON_MAX = 160


class ConfigError(Exception):
    """All errors of a configuration, a line each."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def load_config(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    profile: Profile,
) -> ServerConfig:
    """Return the configuration of a node, checked as a whole.

    `flags` are texts by path of their key, such as `tcp.address`.

    Raises:
        ConfigError: There are errors; it names all of them.
    """
    given: dict[str, Given] = {}
    problems: list[Problem] = []
    for source in (read_file(file), read_environment(environment), read_flags(flags)):
        given |= source.given
        problems += source.problems
    values = {path: declared.default_of(profile) for path, declared in SETTINGS.items()}
    for path, declared in SETTINGS.items():
        if path not in given:
            continue
        try:
            values[path] = declared.setting.kind.read(given[path].raw)
        except ValueError as error:
            problems.append(Problem(path, _refusal(declared, given[path], str(error))))
    config = _build(profile, values, {path: each.origin for path, each in given.items()})
    wrong = dict.fromkeys(problem.path for problem in problems)
    for relation in broken_relations(config):
        # A key that could not be read has its default here, which was not asked for.
        if not any(path in wrong for path in relation.paths):
            problems.append(Problem(relation.paths[0], _breach(config, relation)))
    if problems:
        raise ConfigError(problems)
    return config


def _build(
    profile: Profile, values: Mapping[str, object], origins: Mapping[str, str]
) -> ServerConfig:
    sections: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for path, value in values.items():
        sections[SETTINGS[path].section][SETTINGS[path].key] = value
    made = {name: SECTIONS[name](**keys) for name, keys in sections.items()}
    return ServerConfig(profile=profile, origins=origins, **made)  # type: ignore[arg-type]  # by name


def _refusal(declared: Declared, given: Given, reason: str) -> str:
    shown = "..." if declared.setting.is_secret else shorten(_show_raw(given.raw))
    because = f"{shorten(reason, _REASON_MAX)}; " if reason else ""
    return (
        f"{declared.path} = {shown} ({given.origin}): {because}"
        f"allowed {declared.setting.kind.allowed}"
    )


def _show_raw(raw: object) -> str:
    return f'"{raw}"' if isinstance(raw, str) else repr(raw)


def _breach(config: ServerConfig, relation: Relation) -> str:
    path, *others = relation.paths
    facts = ", ".join(f"{other} = {config.show(other)}" for other in others)
    return (
        f"{path} = {config.show(path)} ({config.origin(path)}): must be {relation.rule}"
        f"{f' ({facts})' if facts else ''}"
    )
