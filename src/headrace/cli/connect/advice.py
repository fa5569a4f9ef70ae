"""Advice after the sentence of an error: what the user can do about it."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from headrace.client.errors import (
    NO_NODE_ADVICE,
    HeadraceError,
    ProtocolBroken,
    RefusedByServer,
    Unauthenticated,
    Unavailable,
    Unreadable,
)
from headrace.client.sync.client import Client

_ADVICE: dict[type[HeadraceError], str] = {
    Unavailable: NO_NODE_ADVICE,
    ProtocolBroken: "is that the TCP port of a node?",
    Unreadable: "--skip-damaged goes past them; `headrace doctor` examines the files of a node that"
    " is stopped",
    Unauthenticated: "check --username and --password, or the variables and the context for them",
}


def advise(error: HeadraceError) -> str:
    """Return the error's sentence with advice, if there is some."""
    words = next((words for kind, words in _ADVICE.items() if isinstance(error, kind)), "")
    said = str(error)
    return f"{said}; {words}" if words and words not in said else said


def advise_missing(error: HeadraceError, client: Client, arguments: Mapping[str, Any]) -> str:
    """Return the sentence of a not-found error with the most similar existing name."""
    near = ""
    # No names for a user without permission, and none after the connection was lost.
    with suppress(RefusedByServer, Unavailable):
        near = _nearest(client, arguments)
    return f"{error}; {near}" if near else str(error)


def _nearest(client: Client, arguments: Mapping[str, Any]) -> str:
    stream, topic = arguments.get("topic") or (arguments.get("stream"), None)
    if not isinstance(stream, str):
        return ""
    streams = [each.name for each in client.get_streams()]
    if stream not in streams:
        return _hint("stream", stream, streams)
    if not isinstance(topic, str):
        return ""
    topics = [each.name for each in client.get_stream(stream).topics]
    return "" if topic in topics else _hint("topic", topic, topics, f"{stream}/")


def _hint(what: str, name: str, known: Iterable[str], before: str = "") -> str:
    near = get_close_matches(name, known, n=1)
    return f"the {what} most like it is {before}{near[0]}" if near else ""
