"""The pages under docs/formats say what the code says."""

import re
from pathlib import Path
from typing import Any

from headrace.wire.commands.session import LEGACY_LOGIN_CODES
from headrace.wire.commands.table import COMMANDS
from headrace.wire.errors import Code
from headrace.wire.evictions import EvictionReason
from headrace.wire.layout import Header, Layout
from headrace.wire.replica.kinds import LAYOUTS

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "wire.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## [0-9]+\. {title}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title!r}"
    return found[1]


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def test_the_error_table() -> None:
    rows = re.findall(r"\| *([0-9]+) *\| *([A-Za-z0-9]+) *(?=\|)", section("Error codes"))
    told = {int(number): name for number, name in rows}
    assert told == {code.value: camel(code.name) for code in Code}


def test_the_command_table() -> None:
    rows = re.findall(
        r"^\| *([0-9]+) *\| *[^|]+\| *\**([0-9]+)\** *", section("Command table"), re.M
    )
    told = {int(code): int(operation) for code, operation in rows}
    ours = {code: int(command.operation) for code, command in COMMANDS.items()}
    assert told == ours | dict.fromkeys(LEGACY_LOGIN_CODES, 2)


def test_the_layouts_between_replicas() -> None:
    told: dict[int, dict[str, tuple[int, int]]] = {}
    for kinds, fields in re.findall(r"^\| ([0-9]+ [A-Z][^|]*) \| (128 [^|]*) \|", PAGE, re.M):
        places = {
            name: (int(offset), int(bits) // 8)
            for offset, name, bits in re.findall(r"([0-9]+) (\w+) u([0-9]+)", fields)
        }
        told |= {int(kind): places for kind in re.findall(r"([0-9]+) [A-Z]", kinds)}
    assert told == {kind: own_places(layout) for kind, layout in LAYOUTS.items()}


def own_places(layout: Layout[Any]) -> dict[str, tuple[int, int]]:
    names = [each for each in layout.made.__struct_fields__ if each not in Header.__struct_fields__]
    spans = {name: layout.span(name) for name in names}
    return {name: (span.start, span.stop - span.start) for name, span in spans.items()}


def test_the_eviction_table() -> None:
    rows = re.findall(
        r"^\| *([0-9]+) *\| *([A-Z][A-Za-z]+) *\|", section(r"Eviction header \(command 13\)"), re.M
    )
    told = {int(number): name for number, name in rows}
    assert told == {reason.value: camel(reason.name) for reason in EvictionReason}
