"""What the simulator found in nodes of several shards."""

import pytest

from headrace.shard.metadata_group import MetadataGroup
from headrace.wire.commands import messages
from headrace.wire.commands.session import LOGIN_PASSWORD, PasswordLogin, Register
from headrace.wire.errors import Code, RefusedError
from headrace.wire.replies import read_answer
from tests.shard.several import HomedClient, Several
from tests.shard.test_several_random import poll_of
from tests.shard.whole import VERSION


def test_a_login_whose_connection_has_gone_is_not_waited_for() -> None:
    node = Several(2)
    node.main.is_syncing = False
    client = HomedClient(node, 1, 77)
    login = Register(VERSION, password=PasswordLogin("iggy", b"iggy"))
    client.post(client.make_frame(LOGIN_PASSWORD, login))
    node.rest()
    assert not node.main.shard.is_idle
    node.close(client.connection)
    node.main.shard.check()
    assert node.main.shard.is_idle


def test_a_node_that_does_not_lead_denies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """O6.2 holds on every shard of a node: its shard 0 may be behind what others decided."""
    node = Several(2)
    client = node.client(home=1)
    monkeypatch.setattr(MetadataGroup, "is_current", property(lambda _: False))
    client.post(client.make_frame(messages.POLL_MESSAGES, poll_of(0)))
    node.rest()
    with pytest.raises(RefusedError) as refused:
        read_answer(client.take())
    assert refused.value.code == Code.TRANSIENT_NOT_ACCEPTED
