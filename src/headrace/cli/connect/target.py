"""Which node a client command talks to, and as which user.

```python
@stream.command("list", short_help="List all streams.")
@with_output          # prints the returned value; see `headrace.cli.show.output`
@with_client          # adds --address --username --password --token --timeout
def list_streams(client: "Client") -> Rows: ...
```

The function gets a connected `headrace.Client` as `client`, closed when it returns.
An error of the client becomes one sentence and an exit code; a `ValueError` about an argument is a
usage error.

```
address       --address, else HEADRACE_ADDRESS, else the current context, else 127.0.0.1:8090
credentials   flags, else HEADRACE_TOKEN, or HEADRACE_USERNAME and HEADRACE_PASSWORD,
              else the context's, if its node is the one that is asked, else iggy/iggy on loopback
```
"""

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.endpoints import Endpoint, parse_endpoint
from headrace.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from headrace.cli.connect.contexts import Context

ADDRESS_VARIABLE = "HEADRACE_ADDRESS"
ADDRESS_DEFAULT = "127.0.0.1:8090"
# From a context's field to the environment variable of the same meaning.
CREDENTIALS = {
    "username": "HEADRACE_USERNAME",
    "password": "HEADRACE_PASSWORD",
    "token": "HEADRACE_TOKEN",
}
# Loaded when a command runs; its help page needs neither.
CONTEXTS_MODULE = "headrace.cli.connect.contexts"
DIAL_MODULE = "headrace.cli.connect.dial"
ASK = "-"  # prompt for the password

F = TypeVar("F", bound=Callable[..., Any])


def connection_options(command: F) -> F:
    """Add the options for the node and the login."""
    for option in (
        click.option("--timeout", metavar="TIME", default="30 s", help="Longest wait. [30 s]"),
        click.option(
            "--token",
            metavar="TOKEN",
            help="A personal access token, instead of name and password.",
        ),
        click.option(
            "--password", metavar="TEXT", help="Its password; - asks for it. [HEADRACE_PASSWORD]"
        ),
        click.option(
            "--username", metavar="NAME", help="The user to log in as. [HEADRACE_USERNAME]"
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="The node. [HEADRACE_ADDRESS, the context's, 127.0.0.1:8090]",
        ),
    ):
        command = option(command)
    return command


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass a connected client to the command, as the keyword argument `client`."""

    @connection_options
    @functools.wraps(command)
    def connected(
        *,
        address: str | None,
        timeout: str,
        **rest: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the result of the command
        flags = {name: rest.pop(name) for name in CREDENTIALS}
        given = {name: text for name, text in flags.items() if text is not None}
        environment = complete(os.environ, address, is_named=bool(given))
        credentials = _ask_password(given, environment)
        opener = importlib.import_module(DIAL_MODULE)  # loads the client
        with (
            naming_context(os.environ, address),
            opener.dial(address, credentials, timeout, environment) as client,
        ):
            return command(client=client, **rest)

    return connected


def resolve_address(flag: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Return the node's address from the flag, the environment, the context or the default.

    Raises:
        CommandError: The value is not an address.
    """
    name, text = "--address", flag
    if text is None:
        name = ADDRESS_VARIABLE if environment.get(ADDRESS_VARIABLE) else "the context's address"
        text = complete(environment, flag).get(ADDRESS_VARIABLE) or ADDRESS_DEFAULT
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        raise CommandError(f"{name}: {error}", Exit.USAGE) from None
    if endpoint.port == 0:
        raise CommandError(f"{name}: {text} has no port to connect to", Exit.USAGE)
    return endpoint


@contextmanager
def naming_context(environment: Mapping[str, str], address: str | None) -> Iterator[None]:
    """Add the node to every error if its address comes from a context."""
    if address or environment.get(ADDRESS_VARIABLE):
        yield
        return
    contexts = importlib.import_module(CONTEXTS_MODULE).load_contexts(environment)
    context = contexts.get(contexts.current)
    try:
        yield
    except CommandError as error:
        if context.address is None:
            raise
        words = f"the node is {context.address}, from the context {contexts.current}"
        raise CommandError(f"{error}; {words}", error.code) from None


def complete(
    environment: Mapping[str, str], address: str | None, *, is_named: bool = False
) -> dict[str, str]:
    """Return the environment, completed from the current context.

    Credentials are taken together or not at all: not if flags set some (`is_named`), not if the
    environment does, and never for another node than the context's.
    """
    contexts = importlib.import_module(CONTEXTS_MODULE).load_contexts(environment)
    context = contexts.get(contexts.current)
    made = dict(environment)
    asked = address or environment.get(ADDRESS_VARIABLE)
    if not asked and context.address:
        made[ADDRESS_VARIABLE] = context.address
    is_its_node = asked in (None, "", context.address or ADDRESS_DEFAULT)
    is_named = is_named or any(environment.get(name) for name in CREDENTIALS.values())
    return made | _credentials(context) if is_its_node and not is_named else made


def _credentials(context: "Context") -> dict[str, str]:
    """Return the variables for a context's credentials; a token replaces the others."""
    names = ("token",) if context.token else ("username", "password")
    values = {CREDENTIALS[name]: getattr(context, name) for name in names}
    return {name: value for name, value in values.items() if value}


def _ask_password(given: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the credentials from the flags; prompt for a missing password."""
    has_token = "token" in given or bool(not given and environment.get(CREDENTIALS["token"]))
    has_name = "username" in given or bool(environment.get(CREDENTIALS["username"]))
    has_password = "password" in given or bool(environment.get(CREDENTIALS["password"]))
    is_missing = has_name and not has_token and not has_password
    if given.get("password") == ASK or (is_missing and sys.stdin.isatty()):
        return {**given, "password": read_secret("Password")}
    return given


def read_secret(words: str, *, confirm: bool = False) -> str:
    """Prompt for a secret without echo; without a terminal, read a line of the input."""
    if sys.stdin.isatty():
        asked: str = click.prompt(words, hide_input=True, confirmation_prompt=confirm, err=True)
        return asked
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise CommandError(f"{words.lower()}: nothing to read from the input", Exit.USAGE)
    return line
