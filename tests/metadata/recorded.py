"""What the machine makes of the requests that the released SDK sent, in the order they were sent.

They were recorded against a stand-in that granted nearly everything; the scenario file says what
this machine answers, and so shows which wishes of the SDK it grants.
"""

import json
from pathlib import Path

import msgspec

from headrace.metadata.admission import resolve_topic_options, resolve_topic_update
from headrace.wire.codec import encode
from headrace.wire.commands import groups, internal, tokens, topics, users
from headrace.wire.commands.table import find_command
from headrace.wire.errors import RefusedError
from headrace.wire.numbers import Operation
from headrace.wire.requests import REQUEST, RequestHeader
from tests.metadata.stage import HASH, Stage

TESTS = Path(__file__).parent.parent
METADATA = range(128, 150)


def replay() -> list[str]:
    """Return what a new machine answers to each of them."""
    stage = Stage()
    answers = []
    for line in (TESTS / "vectors" / "sdk-0.9.0.jsonl").read_text().splitlines():
        vector = json.loads(line)
        request = bytes.fromhex(vector["request"])
        header = REQUEST.decode(request)
        if header.operation not in METADATA or header.operation == Operation.DELETE_SEGMENTS:
            continue
        answers.append(f"{vector['name']}: {answer(stage, header, request[256:])}")
    return answers


def answer(stage: Stage, header: RequestHeader, body: bytes) -> str:
    command = find_command(header)
    try:
        operation, proposed = propose(stage, command.operation, command.decode_request(body))
        payload = stage.ask(operation, proposed or body)
    except RefusedError as refusal:
        return f"{refusal.code.name} {int(refusal.code)}"
    if header.operation == Operation.CREATE_PERSONAL_ACCESS_TOKEN:
        assert not payload
        return "ok"
    reply = command.decode_reply(payload)
    assert command.encode_reply(reply) == payload
    if isinstance(reply, topics.TopicDetails):
        explicit = ", ".join(option.key for option in reply.topic.explicit)
        return f"topic {reply.topic.id}, explicit {explicit or 'nothing'}"
    return "ok" if reply is None else type(reply).__name__


def propose(stage: Stage, operation: Operation, request: object) -> tuple[int, bytes]:
    """Give the op that the primary makes of a request; an empty body means that of the client."""
    body = b""
    match request:
        case topics.CreateTopic():
            resolved = resolve_topic_options(request, stage.defaults)
            operation = Operation.CREATE_TOPIC_WITH_ASSIGNMENTS
            body = encode(internal.CREATE_TOPIC_WITH_ASSIGNMENTS, resolved)
        case topics.UpdateTopic():
            update = resolve_topic_update(request, stage.defaults)
            body = topics.UPDATE_TOPIC.encode_request(update)
        case groups.JoinGroup():
            body = encode(internal.JOIN_GROUP_AS, internal.JoinGroupAs(request, stage.client, ()))
        case groups.LeaveGroup():
            body = encode(internal.LEAVE_GROUP_AS, internal.LeaveGroupAs(request, stage.client))
        case users.ChangePassword():
            changed = users.ChangePassword(request.user, HASH, HASH)
            body = users.CHANGE_PASSWORD.encode_request(changed)
        case users.CreateUser():
            created = msgspec.structs.replace(request, password=HASH)
            body = users.CREATE_USER.encode_request(created)
        case tokens.CreateToken():
            hashed = internal.CreateTokenHashed(0, request.name, request.expiry, f"{stage.op:064x}")
            body = encode(internal.CREATE_TOKEN_HASHED, hashed)
        case _:
            pass
    return operation, body
