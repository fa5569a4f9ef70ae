"""Every method of the SDK's type stub, and every option that it can send, is used by this suite.

What cannot be used yet is listed with its reason, and an entry of that list that is used after all
is a failure too. The guide's page is written from the same facts: `pytest --rewrite` renews it.
"""

from pathlib import Path

import pytest

from tests.interop.surface import STUB, Offered, offered, used

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "compatibility.md"
MARK = "## What is exercised\n"

# Beginnings of names, and why nothing that begins so is used.
LATER = {
    "Quic": "needs the QUIC transport",
    "WebSocket": "needs the WebSocket transport",
    "HttpConfig": "needs the HTTP API",
    "TcpConfig(tls_": "needs TLS on the TCP transport",
    "TcpConfig.tls_domain": "needs TLS on the TCP transport",
    "TcpConfig.tls_ca_file": "needs TLS on the TCP transport",
    "TcpConfig.tls_validate_certificate": "needs TLS on the TCP transport",
    "CacheMetrics": "the node has no cache of messages whose hits it could count",
}


def reason_for(part: str) -> str | None:
    """Give why a part of the SDK is not used yet, if it is listed."""
    return next((why for beginning, why in LATER.items() if part.startswith(beginning)), None)


@pytest.fixture(scope="module")
def things() -> list[Offered]:
    return offered(STUB.read_text())


def test_nothing_is_left_out(things: list[Offered]) -> None:
    in_use = used(things)
    parts = [part for thing in things for part in thing.parts()]
    assert len(parts) > 600
    missing = [part for part in parts if part not in in_use and reason_for(part) is None]
    assert missing == []


def test_the_list_of_later_things_is_true(things: list[Offered]) -> None:
    in_use = used(things)
    named = [part for thing in things if not thing.is_property for part in thing.parts()]
    assert [part for part in named if part in in_use and reason_for(part) is not None] == []
    parts = [part for thing in things for part in thing.parts()]
    stale = [
        beginning for beginning in LATER if not any(part.startswith(beginning) for part in parts)
    ]
    assert stale == []


def test_the_reading_of_source_text(tmp_path: Path) -> None:
    """What is not there is missed: by method, by option, by variant, by property."""
    things = offered(
        "class IggyClient:\n"
        "    def __new__(cls, conn: str) -> IggyClient: ...\n"
        "    def ping(self) -> None: ...\n"
        "    def send(self, stream: str, *, count: int = 1) -> None: ...\n"
        "    def __repr__(self) -> str: ...\n"
        "class Mode:\n"
        "    class Fast(Mode):\n"
        "        def __new__(cls, _0: int) -> Mode.Fast: ...\n"
        "class Colour(enum.Enum):\n"
        "    RED = ...\n"
        "class Stats:\n"
        "    @property\n"
        "    def size(self) -> int: ...\n"
    )
    every = {part for thing in things for part in thing.parts()}
    calls = {
        "a_client.ping()": {"IggyClient.ping"},
        "IggyClient('x')": {"IggyClient", "IggyClient(conn)"},
        "client.send('s')": {"IggyClient.send", "IggyClient.send(stream)"},
        "client.send(count=2)": {"IggyClient.send", "IggyClient.send(count)"},
        "Mode.Fast(1)": {"Mode.Fast", "Mode.Fast(_0)"},
        "Colour.RED": {"Colour.RED"},
        "x.size": {"Stats.size"},
        "x == {'size': 1}": {"Stats.size"},
        "other.ping()": set(),
    }
    found = {}
    for text in calls:
        (tmp_path / "module.py").write_text(text)
        found[text] = set(used(things, tmp_path))
    assert found == calls
    assert set().union(*calls.values()) == every
    (tmp_path / "module.py").write_text("client.send(**options)")
    with pytest.raises(AssertionError, match="hides its options"):
        used(things, tmp_path)


def test_the_page(things: list[Offered], *, is_rewriting: bool) -> None:
    head, mark, tail = PAGE.read_text().partition(MARK)
    assert mark == MARK
    expected = make_page(things)
    if is_rewriting:
        PAGE.write_text(head + mark + expected)
    else:
        assert tail == expected, "renew it with pytest --rewrite"


def make_page(things: list[Offered]) -> str:
    """Give the part of the page that follows from the stub and from the suite."""
    in_use = used(things)
    lines = ["", "| Call | Options | Tests |", "|---|---|---|"]
    properties: dict[str, list[str]] = {}
    for thing in things:
        if thing.name not in in_use:
            continue
        if thing.is_property:
            owner, _, name = thing.name.rpartition(".")
            properties.setdefault(owner, []).append(name)
            continue
        options = ", ".join(
            f"`{each}`" for each in thing.options if reason_for(f"{thing.name}({each})") is None
        )
        modules = [each for each in in_use[thing.name] if each.startswith("test_")]
        tests = ", ".join(f"`{each}`" for each in modules or in_use[thing.name])
        lines.append(f"| `{thing.name}` | {options} | {tests} |")
    lines += ["", "Properties that are read:", "", "| Class | Properties |", "|---|---|"]
    lines += [
        f"| `{owner}` | {', '.join(f'`{each}`' for each in names)} |"
        for owner, names in properties.items()
        if reason_for(owner) is None
    ]
    lines += ["", "## What comes later", "", "| Begins with | Reason |", "|---|---|"]
    lines += [f"| `{beginning}` | {why} |" for beginning, why in LATER.items()]
    return "\n".join(lines) + "\n"
