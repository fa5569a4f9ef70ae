"""Every command by its code, and which one a request asks for.

Flow: decode.
"""

from typing import Any, TypeAlias

from headrace.wire.commands import (
    clients,
    clock,
    counters,
    groups,
    holders,
    messages,
    reconcile,
    segments,
    session,
    shards,
    streams,
    system,
    tokens,
    topics,
    users,
)
from headrace.wire.commands.command import Command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import OWN_CODE_MIN, Operation
from headrace.wire.requests import RequestHeader, check_request

# In the table each command has bodies of its own type; imported by name, a command is typed.
AnyCommand: TypeAlias = Command[Any, Any]

_ALL: tuple[AnyCommand, ...] = (
    *system.COMMANDS,
    *clients.COMMANDS,
    *users.COMMANDS,
    *session.COMMANDS,
    *tokens.COMMANDS,
    *messages.COMMANDS,
    *streams.COMMANDS,
    *topics.COMMANDS,
    *groups.COMMANDS,
    *segments.COMMANDS,
    *counters.COMMANDS,
    *shards.COMMANDS,
    *reconcile.COMMANDS,
    *clock.COMMANDS,
    *holders.COMMANDS,
)
COMMANDS: dict[int, AnyCommand] = {command.code: command for command in _ALL}
assert len(COMMANDS) == len(_ALL)

# Both logins have one operation and one body: the codec reads either, the first stands for both.
_BY_OPERATION = {
    command.operation: command
    for command in reversed(_ALL)
    if command.operation != Operation.NON_REPLICATED
}


def find_command(header: RequestHeader) -> AnyCommand:
    """Return the command that a request asks for.

    Raises:
        RemoteError: No answer could reach this client.
        EvictedError: The client may not send this operation, or logs in by a retired command.
        RefusedError: The code is not known, or is one that must not travel as a read.
    """
    operation = check_request(header)
    if operation != Operation.NON_REPLICATED:
        return _BY_OPERATION[operation]
    if header.code in session.LEGACY_LOGIN_CODES:
        raise EvictedError(EvictionReason.MALFORMED_LOGIN, client=header.client)
    command = COMMANDS.get(header.code)
    if command is not None and command.operation == Operation.NON_REPLICATED:
        return command
    is_ours = command is not None or header.code >= OWN_CODE_MIN
    raise RefusedError(
        Code.FEATURE_UNAVAILABLE if is_ours else Code.INVALID_COMMAND, command_code=header.code
    )
