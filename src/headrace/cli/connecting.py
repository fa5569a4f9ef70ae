"""Which node a client command talks to."""

from collections.abc import Mapping

from headrace.base.endpoints import Endpoint, parse_endpoint
from headrace.cli.exits import CommandError, Exit

ADDRESS_VARIABLE = "HEADRACE_ADDRESS"
ADDRESS_DEFAULT = "127.0.0.1:8090"


def resolve_address(flag: str | None, environment: Mapping[str, str]) -> Endpoint:
    """Give the address of a node: the flag, else the environment, else the usual one.

    Raises:
        CommandError: What was given is no address.
    """
    if flag is not None:
        name, text = "--address", flag
    else:
        name, text = ADDRESS_VARIABLE, environment.get(ADDRESS_VARIABLE) or ADDRESS_DEFAULT
    try:
        endpoint = parse_endpoint(text)
    except ValueError as error:
        raise CommandError(f"{name}: {error}", Exit.USAGE) from None
    if endpoint.port == 0:
        raise CommandError(f"{name}: {text} has no port to connect to", Exit.USAGE)
    return endpoint
