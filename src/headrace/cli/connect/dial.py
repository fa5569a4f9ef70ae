"""Opens a client for a command, and turns its errors into one sentence.

Loaded by name when a command runs, because it loads the whole client.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import click

from headrace.cli.connect.advice import advise, advise_missing
from headrace.cli.exits import CommandError, Exit
from headrace.client.errors import (
    HeadraceError,
    NotFound,
    Unauthenticated,
    Unauthorized,
    Unavailable,
)
from headrace.client.session.call import Call
from headrace.client.session.settings import ConnectOptions, resolve
from headrace.client.sync.client import Client
from headrace.wire.commands.rights import tell_needed

R = TypeVar("R")

_CODES: dict[type[HeadraceError], Exit] = {
    NotFound: Exit.NOT_FOUND,
    Unauthenticated: Exit.AUTH,
    Unauthorized: Exit.AUTH,
    Unavailable: Exit.UNAVAILABLE,
}


class TerminalClient(Client):
    """A client whose `Unauthorized` errors name the permission that the command needs."""

    def ask(self, call: Call[R], /) -> R:
        """Send a call, wait for its answer and return it."""
        try:
            return super().ask(call)
        except Unauthorized as error:
            needed = tell_needed(call.command.code)
            # Keep the client's own class: producers and consumers raise it from their threads.
            raise Unauthorized(error.code, call.asked, f"it needs {needed}") from None


@contextmanager
def dial(
    address: str | None,
    credentials: Mapping[str, str],
    timeout: str,
    environment: Mapping[str, str],
) -> Iterator[Client]:
    """Return a context manager that yields a connected client.

    Raises:
        CommandError: An argument is wrong, or the client failed, here or in the block.
    """
    try:
        options = ConnectOptions(timeout=timeout, **credentials)  # type: ignore[typeddict-item] # names of it
        client = TerminalClient(resolve(address, options, environment))
        client.open()
        with client:
            try:
                yield client
            except NotFound as error:
                arguments = click.get_current_context().params
                raise CommandError(
                    advise_missing(error, client, arguments), Exit.NOT_FOUND
                ) from None
    except HeadraceError as error:
        raise failure(error) from None
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from None


def failure(error: HeadraceError) -> CommandError:
    """Return the error with which a command ends after an error of the client."""
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), Exit.FAILED)
    return CommandError(advise(error), code)
