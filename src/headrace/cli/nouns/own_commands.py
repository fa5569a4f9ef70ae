"""Requests commands that only Headrace has (O8). Loaded when a command runs."""

from collections.abc import Callable
from typing import TypeVar

from headrace.client.errors import RefusedByServer
from headrace.wire.errors import Code

R = TypeVar("R")

# The answers of a server that does not support such a command.
_UNSUPPORTED = (Code.FEATURE_UNAVAILABLE, Code.INVALID_COMMAND)


def ask_if_supported(ask: Callable[[], R]) -> R | None:
    """Return the answer; None if the server does not support the command.

    Raises:
        RefusedByServer: The server refused it for another reason.
    """
    try:
        return ask()
    except RefusedByServer as error:
        if error.code in _UNSUPPORTED:
            return None
        raise
