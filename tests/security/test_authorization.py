"""Every command x everybody, over a real socket: 100 % of the cells, each with its one answer.

What is expected is said twice, by the server's table and by `expectations.py`; both must agree with
what the node does. A command that has no row, no expectation or no request here fails.
"""

import pytest

from headrace.wire.commands.rights import RULES, Resource
from headrace.wire.commands.session import LOGOUT
from headrace.wire.commands.table import COMMANDS, AnyCommand
from headrace.wire.commands.users import CHANGE_PASSWORD, GET_USER, ChangePassword, GetUser
from headrace.wire.numbers import Operation
from tests.known_secrets import make_password
from tests.security.expectations import KINDS, OPEN, OWN, WHAT
from tests.security.house import DONE, House, ask
from tests.security.levels import LEVELS, NO_LOGIN, NO_PERMISSION, ROOT, Level
from tests.security.requests import BEFORE, REQUESTS


def may_by_table(command: AnyCommand, level: Level) -> bool:
    """Whether the server's own table lets somebody do something."""
    rule = RULES[command.code]
    if rule.resource is Resource.OPEN or level is ROOT:
        return True
    if rule.resource is Resource.OWN:
        return level is not NO_LOGIN
    flags = {"global": rule.everywhere, "stream": rule.stream, "topic": rule.topic}
    return level.flag in flags.get(level.place, ())


def may_by_kind(command: AnyCommand, level: Level) -> bool:
    """Whether the protocol's description does."""
    what = WHAT[command.name]
    if what == OPEN or level is ROOT:
        return True
    if what == OWN:
        return level is not NO_LOGIN
    kind = KINDS[what]
    flags = {"global": kind.everywhere, "stream": kind.stream, "topic": kind.topic}
    return level.flag in flags.get(level.place, ())


def expected(command: AnyCommand, level: Level) -> str:
    """Give the one answer that somebody must get."""
    if may_by_kind(command, level):
        return DONE
    if level is not NO_LOGIN:
        return "refused UNAUTHORIZED"
    is_read = command.operation == Operation.NON_REPLICATED
    return "refused UNAUTHENTICATED" if is_read else "evicted NO_SESSION"


def try_cell(house: House, command: AnyCommand, level: Level) -> str:
    """Have somebody do something; say what came of it."""
    house.furnish()
    client = house.client_at(level)
    if command.code in BEFORE and may_by_kind(command, level):
        BEFORE[command.code](house, client)
    answer = ask(client, command, REQUESTS[command.code](house))
    if level is NO_LOGIN:
        client.close()
    elif command is LOGOUT:
        house.leave(level)
    return answer


def test_every_command_is_in_every_table() -> None:
    assert sorted(RULES) == sorted(REQUESTS) == sorted(COMMANDS)
    assert sorted(WHAT) == sorted(command.name for command in COMMANDS.values())
    assert {what for what in WHAT.values() if what not in (OPEN, OWN)} == set(KINDS)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_the_table_says_what_the_protocol_does(command: AnyCommand) -> None:
    assert [may_by_table(command, each) for each in LEVELS] == [
        may_by_kind(command, each) for each in LEVELS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_cells(house: House, command: AnyCommand) -> None:
    """Share: interop, about 10 s for all commands together."""
    wanted = {level.username: expected(command, level) for level in LEVELS}
    assert {level.username: try_cell(house, command, level) for level in LEVELS} == wanted


@pytest.mark.slow
def test_users_may_read_themselves_and_change_their_password(house: House) -> None:
    own = NO_PERMISSION.username
    password = make_password(own)
    client = house.log_in(own)
    assert ask(client, GET_USER, GetUser(own)) == DONE
    assert ask(client, GET_USER, GetUser(0)) == "refused UNAUTHORIZED"
    own_change = ChangePassword(own, b"wrong password", password)
    assert ask(client, CHANGE_PASSWORD, own_change) == "refused INVALID_CREDENTIALS"
    root_change = ChangePassword(0, b"wrong password", password)
    assert ask(client, CHANGE_PASSWORD, root_change) == "refused UNAUTHORIZED"
    client.close()
