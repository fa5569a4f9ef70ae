"""What somebody may not know looks the same whether it exists or not, byte for byte.

For every command that names a thing, and everybody: the things that it may not do this to, and the
missing ones where it may not read the level above, have one answer between them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands import clients, groups, users
from headrace.wire.commands.table import COMMANDS, AnyCommand
from headrace.wire.errors import Code
from headrace.wire.numbers import Operation
from headrace.wire.replies import REPLY
from tests.e2e.raw import RawClient
from tests.security.expectations import KINDS, OPEN, OWN, WHAT, Kind
from tests.security.house import (
    GROUP,
    OTHER_STREAM,
    OTHER_TOPIC,
    STREAM,
    TOPIC,
    VICTIM,
    House,
)
from tests.security.levels import LEVELS, NO_LOGIN, NO_PERMISSION, ROOT, Level
from tests.security.requests import REQUESTS
from tests.wire.samples import SAMPLES

pytestmark = pytest.mark.slow

MISSING = "nowhere"
STREAMS = (STREAM, OTHER_STREAM, MISSING)
TOPICS = tuple((stream, topic) for stream in STREAMS for topic in (TOPIC, OTHER_TOPIC, MISSING))
# The other stream has no topics.
EXISTING = ((STREAM,), (OTHER_STREAM,), (STREAM, TOPIC), (STREAM, OTHER_TOPIC))
ASKING = [level for level in LEVELS if level not in (NO_LOGIN, ROOT)]


def may(kind: Kind, level: Level, path: Sequence[str]) -> bool:
    """Whether somebody may do this to what a path names: all, a stream, or a topic."""
    place, flag = level.place, level.flag
    if place == "global":
        return flag in kind.everywhere
    if place == "stream":
        return path[:1] == (STREAM,) and flag in kind.stream
    if place == "topic":
        return path == (STREAM, TOPIC) and flag in kind.topic
    if place == "other stream":
        return path[:1] == (OTHER_STREAM,) and bool(kind.stream)
    if place == "other topic":
        return path == (STREAM, OTHER_TOPIC) and bool(kind.topic)
    return False


def is_hidden(kind: Kind, level: Level, path: tuple[str, ...]) -> bool:
    """Whether somebody must not learn if a path names anything."""
    if path in EXISTING:
        return not may(kind, level, path)
    above = path[:1] if path[:1] in EXISTING else ()
    listing = KINDS["look at all topics" if above else "look at all streams"]
    return not may(kind, level, above) and not may(listing, level, above)


def answer_to(client: RawClient, command: AnyCommand, request: Any) -> bytes:
    """Give what came back: of a read the whole frame, of an op what does not count ops."""
    is_read = command.operation == Operation.NON_REPLICATED
    number = client.request
    client.connection.send(client.make_frame(command, request))
    frame = client.connection.receive()
    assert frame is not None
    if is_read:
        client.request = number  # A read echoes its number, so all have the same.
        return frame
    return REPLY.decode(frame).status.to_bytes(4, "little") + frame[HEADER_BYTES:]


def names_a(command: AnyCommand, field: str) -> bool:
    """Whether requests of a command name a stream, a topic and so on."""
    return hasattr(SAMPLES[command.code][0], field)


IN_STREAMS = [
    each
    for each in COMMANDS.values()
    if names_a(each, "stream") and WHAT[each.name] not in (OPEN, OWN)
]


def check_one_answer(house: House, level: Level, command: AnyCommand, requests: list[Any]) -> None:
    """Ask for each; there must be one answer, and it must be no."""
    client = house.client_at(level)
    answers = {answer_to(client, command, request) for request in requests}
    assert len(answers) == 1, f"{level.username} can tell {command.name} of {requests} apart"
    (only,) = answers
    assert int(Code.UNAUTHORIZED).to_bytes(4, "little") in only


@pytest.mark.parametrize("command", IN_STREAMS, ids=lambda command: command.name)
def test_streams_and_topics(house: House, command: AnyCommand) -> None:
    """Share: interop, about 10 s for all commands together."""
    house.furnish()
    kind = KINDS[WHAT[command.name]]
    is_topic = names_a(command, "topic")
    paths = TOPICS if is_topic else tuple((stream,) for stream in STREAMS)
    sample = REQUESTS[command.code](house)
    seen_both = 0
    for level in ASKING:
        hidden = [path for path in paths if is_hidden(kind, level, path)]
        if not hidden:
            continue
        seen_both += len({path in EXISTING for path in hidden}) == 2
        fields = [dict(zip(("stream", "topic"), path, strict=False)) for path in hidden]
        requests = [msgspec.structs.replace(sample, **named) for named in fields]
        check_one_answer(house, level, command, requests)
    assert seen_both >= 5  # Else the matrix would be empty, and prove nothing.


@pytest.mark.parametrize(
    "command",
    [each for each in IN_STREAMS if names_a(each, "group")],
    ids=lambda command: command.name,
)
def test_groups(house: House, command: AnyCommand) -> None:
    house.furnish()
    sample = REQUESTS[command.code](house)
    requests = [msgspec.structs.replace(sample, group=each) for each in (GROUP, MISSING, 0, 4096)]
    kind = KINDS[WHAT[command.name]]
    for level in ASKING:
        if not may(kind, level, (STREAM, TOPIC)):
            check_one_answer(house, level, command, requests)


@pytest.mark.parametrize(
    "command",
    [each for each in users.COMMANDS if names_a(each, "user")],
    ids=lambda command: command.name,
)
def test_users(house: House, command: AnyCommand) -> None:
    house.furnish()
    sample = REQUESTS[command.code](house)
    named = (VICTIM, "iggy", 0, MISSING, 4096)
    requests = [msgspec.structs.replace(sample, user=each) for each in named]
    listing, kind = KINDS["look at users"], KINDS[WHAT[command.name]]
    for level in ASKING:
        if not may(listing, level, ()) and not may(kind, level, ()):
            check_one_answer(house, level, command, requests)


def test_clients(house: House) -> None:
    me = house.root.call(clients.GET_ME, None).client.client_id
    requests = [clients.GetClient(number) for number in (me, 1, 0xFFFF_FFF0)]
    for level in ASKING:
        if not may(KINDS["look at the server"], level, ()):
            check_one_answer(house, level, clients.GET_CLIENT, requests)


def test_whoever_may_read_the_level_above_is_told(house: House) -> None:
    """The other side: a missing group is told to a reader of its topic, and to nobody else."""
    house.furnish()
    missing = groups.GetGroup(STREAM, TOPIC, MISSING)
    reader = next(each for each in LEVELS if (each.place, each.flag) == ("topic", "read_topic"))
    assert house.client_at(reader).call(groups.GET_GROUP, missing) is None
    check_one_answer(house, NO_PERMISSION, groups.GET_GROUP, [missing])
