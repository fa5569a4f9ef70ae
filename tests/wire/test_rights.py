"""What a command needs, in words."""

import pytest

from headrace.wire.commands import messages, session, streams, system, topics, users
from headrace.wire.commands.rights import RULES, tell_needed
from headrace.wire.commands.table import COMMANDS


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (system.PING.code, "needs no login"),
        (session.LOGOUT.code, "needs no login"),
        (system.DESCRIBE_OPTIONS.code, "any user, about itself"),
        (streams.CREATE_STREAM.code, "manage_streams everywhere"),
        (users.GET_USERS.code, "manage_users or read_users everywhere"),
        (streams.DELETE_STREAM.code, "manage_streams everywhere, or manage_stream for the stream"),
        (
            messages.SEND_MESSAGES.code,
            (
                "manage_streams or manage_topics or send_messages everywhere,"
                " or manage_stream or manage_topics or send_messages for the stream,"
                " or manage_topic or send_messages for the topic"
            ),
        ),
        (999_999, "what nobody has"),
    ],
)
def test_words(code: int, words: str) -> None:
    assert tell_needed(code) == words


def test_every_command_has_a_row() -> None:
    assert sorted(RULES) == sorted(COMMANDS)
    assert topics.CREATE_TOPIC.code in RULES
