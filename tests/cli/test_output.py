"""Tables, JSON, JSON lines and YAML of the same things."""

import doctest
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.show import quantities
from headrace.cli.show.output import FORMATS, Done, Record, Rows, Shown, Value, show
from headrace.cli.show.quantities import write_bytes, write_duration, write_time
from headrace.cli.show.tables import printable
from headrace.cli.show.yaml import to_yaml

ROWS = Rows(
    [
        {"id": 1, "name": "shop", "size_bytes": 1536, "created_at": 1_700_000_000_000_000},
        {"id": 20, "name": "ma\x1b[31mrt", "size_bytes": 0, "created_at": 0},
    ],
    ("id", "name", "size_bytes", "created_at"),
)
RECORD = Record(
    {
        "name": "yes",
        "is_current": True,
        "expiry_micros": 5_400_000_000,
        "bound": None,
        "options": {"a": 1, "b": "x: y"},
        "partitions": [0, 1],
        "members": [{"id": 7, "partitions": [1, 2]}, {"id": 8, "partitions": []}],
        "empty": [],
    }
)
DONE = Done("The stream shop is deleted.", {"stream": "shop", "is_deleted": True})


def shown(what: Shown, output: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    show(what, output)
    told = capsys.readouterr()
    return told.out, told.err


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(ROWS, "table", capsys)
    assert err == ""
    head, rule, first, second = out.splitlines()
    assert head.split() == ["id", "name", "size", "created", "(UTC)"]
    assert not rule.strip("─ ")
    assert first.split() == ["1", "shop", "1.5", "KiB", "2023-11-14", "22:13:20"]
    assert second.split() == ["20", "ma\\x1b[31mrt", "0", "B", "never"]


def test_a_sheet_with_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(RECORD, "table", capsys)
    assert [line.split() for line in out.splitlines() if "─" not in line] == [
        ["name", "yes"],
        ["is", "current", "yes"],
        ["expiry", "1", "h", "30", "min"],
        ["bound", "-"],
        ["options", "a=1,", "b=x:", "y"],
        ["partitions", "0,", "1"],
        ["members"],
        ["id", "partitions"],
        ["7", "1,", "2"],
        ["8", "-"],
    ]


def test_a_sentence_goes_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(DONE, "table", capsys) == ("", "The stream shop is deleted.\n")


@pytest.mark.parametrize("what", [ROWS, RECORD, DONE, Rows([])])
def test_json_is_the_values(what: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(what, "json", capsys)
    assert err == ""
    assert json.loads(out) == (what.rows if isinstance(what, Rows) else what.values)


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(ROWS, "jsonl", capsys)
    assert [json.loads(line) for line in out.splitlines()] == ROWS.rows
    out, _ = shown(DONE, "jsonl", capsys)
    assert out == '{"stream":"shop","is_deleted":true}\n'


def test_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(RECORD, "yaml", capsys)
    assert out.splitlines() == [
        'name: "yes"',
        "is_current: true",
        "expiry_micros: 5400000000",
        "bound: null",
        "options:",
        "  a: 1",
        '  b: "x: y"',
        "partitions:",
        "  - 0",
        "  - 1",
        "members:",
        "  - id: 7",
        "    partitions:",
        "      - 1",
        "      - 2",
        "  - id: 8",
        "    partitions: []",
        "empty: []",
    ]
    assert shown(Rows([]), "yaml", capsys)[0] == "[]\n"


@pytest.mark.parametrize("text", ["yes", "No", "null", "~", "1e3", "0x1f", "1.5", "2026-01-31"])
def test_yaml_quotes_what_looks_like_something_else(text: str) -> None:
    assert to_yaml(text) == f'"{text}"\n'


@pytest.mark.parametrize("text", ["a: b", "- a", "#a", "a #b", " a", "", "a\nb", "@a", "*a", "&a"])
def test_yaml_quotes_what_has_a_meaning(text: str) -> None:
    assert to_yaml(text).startswith('"')


@pytest.mark.parametrize("text", ["shop", "shop/orders", "one order", "a.b-c_d", "read_streams"])
def test_yaml_leaves_words_plain(text: str) -> None:
    assert to_yaml(text) == f"{text}\n"


def read_yaml(lines: list[str]) -> Value:
    """Read what `to_yaml` writes, by indentation: enough to see that nothing is lost."""
    if lines[0].startswith("- "):
        starts = [i for i, line in enumerate(lines) if not line.startswith("  ")]
        ends = [*starts[1:], len(lines)]
        return [
            read_yaml([lines[a][2:], *(line[2:] for line in lines[a + 1 : b])])
            for a, b in zip(starts, ends, strict=True)
        ]
    if not lines[0].startswith('"') and ":" in lines[0]:
        found: dict[str, Value] = {}
        starts = [i for i, line in enumerate(lines) if not line.startswith("  ")]
        for a, b in zip(starts, [*starts[1:], len(lines)], strict=True):
            key, _, rest = lines[a].partition(":")
            inner = [line[2:] for line in lines[a + 1 : b]]
            found[key] = read_yaml(inner) if inner else read_scalar(rest.strip())
        return found
    return read_scalar(lines[0])


def read_scalar(text: str) -> Value:
    try:
        read: Value = json.loads(text)
    except ValueError:
        return text
    return read


KEYS = st.from_regex("[a-z]{2}_[a-z]{1,6}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@given(VALUES)
def test_yaml_loses_nothing(value: Value) -> None:
    written = to_yaml(value)
    assert written.endswith("\n")
    assert read_yaml(written.split("\n")[:-1]) == value


@given(st.text())
def test_nothing_that_is_shown_moves_the_cursor(text: str) -> None:
    assert printable(text).isprintable()


def test_a_broken_terminal_is_no_table_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with markup of rich is a name."""
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    show(Rows([{"name": "[red]a[/red]"}]), "table")
    assert "[red]a[/red]" in out.getvalue()


def test_quantities() -> None:
    assert doctest.testmod(quantities).failed == 0
    assert [write_bytes(n) for n in (0, 1023, 1 << 10, 5 << 29, 1 << 40)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "2.5 GiB",
        "1 TiB",
    ]
    assert [write_duration(n) for n in (0, 999, 1500, 90_000_000, 86_400_000_000)] == [
        "0 s",
        "999 us",
        "1 ms 500 us",
        "1 min 30 s",
        "1 d",
    ]
    assert write_time((1 << 64) - 1).endswith(" us")


def test_every_format_has_its_test() -> None:
    assert FORMATS == ("table", "json", "jsonl", "yaml")
