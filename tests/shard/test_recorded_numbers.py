"""Both ways of numbering, as two SDKs sent them: every send that is answered is stored (O4.2)."""

import json
from pathlib import Path

import pytest

from headrace.wire.commands import messages, streams, topics
from headrace.wire.commands.session import LOGIN_PASSWORD
from headrace.wire.numbers import is_partition
from headrace.wire.replies import read_answer
from headrace.wire.requests import REQUEST, check_request
from tests.shard.whole import Client, Whole

VECTORS = Path(__file__).parent.parent / "vectors"
NUMBERED, UNNUMBERED = "0.9.0", "0.9.0.dev6"
_SESSION_AT = REQUEST.span("session")
SENDS = ("send", "send_equal", "send_other", "send_after")


def recorded(version: str) -> dict[str, bytearray]:
    """Give the requests of a recording, by name."""
    lines = (VECTORS / f"numbers-{version}.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    return {each["name"].partition("/")[2]: bytearray.fromhex(each["request"]) for each in told}


@pytest.mark.parametrize("version", [NUMBERED, UNNUMBERED])
def test_what_takes_a_number(version: str) -> None:
    """Metadata requests always do, reads never; to partitions it depends on the SDK."""
    number = 1
    seen = []
    for frame in recorded(version).values():
        header = REQUEST.decode(frame)
        operation = check_request(header)
        if operation.name in ("REGISTER", "NON_REPLICATED"):
            continue
        assert header.request == number
        seen.append(operation)
        number += version == NUMBERED or not is_partition(operation)
    assert sum(is_partition(operation) for operation in seen) == 5
    assert number == (9 if version == NUMBERED else 4)


@pytest.mark.parametrize("version", [NUMBERED, UNNUMBERED])
def test_a_recorded_session_is_carried_out_whole(version: str) -> None:
    frames = recorded(version)
    client = Client(Whole(), REQUEST.decode(frames["login"]).client)
    registered = LOGIN_PASSWORD.decode_reply(read_answer(client.send_frame(frames.pop("login"))))
    client.session = registered.session
    offsets = []
    for name, frame in frames.items():
        frame[_SESSION_AT] = registered.session.to_bytes(8, "little")
        answer = read_answer(client.send_frame(frame))
        if name in SENDS:
            (told,) = messages.SEND_MESSAGES.decode_reply(answer)
            offsets.append(told.base_offset)
    assert offsets == [0, 1, 2, 3]
    topic = client.ask(topics.GET_TOPIC, topics.GetTopic("shop", "orders"))
    assert topic.partitions[0].messages_count == 4
    assert len(client.ask(streams.GET_STREAMS)) == 2
