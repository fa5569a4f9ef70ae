"""The keys of each sink, and the modes that it supports exactly once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.pipelines.declared import Mode, Sink, SinkKind
from headrace.pipelines.keys import Keys

TOPIC: Final = "topic"


@dataclass(frozen=True)
class SinkRule:
    """The requirements and abilities of a kind of sink."""

    modes: tuple[Mode, ...]
    keys: tuple[str, ...]
    module: str = ""  # the module that must be installed for it
    is_table: bool = True


RULES: Final = {
    SinkKind.PARQUET: SinkRule((Mode.APPEND,), ("path", "partition_by", "options")),
    SinkKind.DELTA: SinkRule((Mode.APPEND, Mode.COMPLETE), ("path",), "deltalake"),
    SinkKind.ICEBERG: SinkRule((Mode.APPEND,), ("path", "table", "catalog"), "pyiceberg"),
    SinkKind.CONSOLE: SinkRule(tuple(Mode), ("options",), is_table=False),
}
_WAY_OUT: Final = {
    Mode.UPDATE: "changed rows need a sink that can replace them: aggregate in windows with a"
    " watermark and append, or use delta with complete",
    Mode.COMPLETE: "the whole result can replace a delta table; or aggregate in windows with a"
    " watermark and append",
}
_ALL_KEYS: Final = ("path", "partition_by", "options", "table", "catalog")


def read_sink(keys: Keys, folder: Path, kinds: tuple[SinkKind, ...]) -> Sink:
    """Return the sink that a table declares; a wrong one is replaced by a console."""
    if keys.raw("kind") == TOPIC:
        keys.refuse("kind", "writing to a topic comes later; write to a table for now")
        return Sink(SinkKind.CONSOLE)
    word = keys.word("kind", kinds, needed=True)
    if not word:
        return Sink(SinkKind.CONSOLE)
    kind = SinkKind(word)
    rule = RULES[kind]
    _refuse_other_keys(keys, kind, rule)
    path = keys.text("path", needed=rule.is_table) if "path" in rule.keys else ""
    if "://" in path:
        keys.refuse("path", f"{path!r}: give a folder that driver and executors see under one path")
    sink = Sink(
        kind=kind,
        path=folder / path if path else None,
        mode=_read_mode(keys, kind, rule),
        table=_read_table(keys) if kind is SinkKind.ICEBERG else "",
        catalog=keys.texts_by_name("catalog") if "catalog" in rule.keys else {},
        partition_by=keys.texts("partition_by") if "partition_by" in rule.keys else (),
        options=keys.texts_by_name("options") if "options" in rule.keys else {},
    )
    keys.finish()
    return sink


def _refuse_other_keys(keys: Keys, kind: SinkKind, rule: SinkRule) -> None:
    for key in _ALL_KEYS:
        if key in keys and key not in rule.keys:
            keys.raw(key)
            keys.refuse(key, f"is no key of a {kind} sink, which takes {', '.join(rule.keys)}")


def _read_mode(keys: Keys, kind: SinkKind, rule: SinkRule) -> Mode:
    mode = keys.word("mode", tuple(Mode), Mode.APPEND)
    if mode not in rule.modes:
        keys.refuse("mode", f"{kind} cannot take {mode}: {_WAY_OUT[Mode(mode)]}")
    return Mode(mode)


def _read_table(keys: Keys) -> str:
    table = keys.text("table", needed=True)
    if table and table.count(".") != 1:
        keys.refuse("table", f"{table!r}: write namespace.name")
    return table
