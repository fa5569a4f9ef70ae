"""May this user do this? The table of `headrace.wire.commands.rights`, asked for every request."""

import msgspec

from headrace.base.ids import ROOT_USER
from headrace.metadata.grants import EVERYWHERE_FLAGS, STREAM_FLAGS, TOPIC_FLAGS, make_mask
from headrace.metadata.state import State
from headrace.wire.commands.rights import RULES, Resource, Rule
from headrace.wire.numbers import UserStatus

__all__ = ["RULES", "Resource", "Rule", "authorize"]


class _Masks(msgspec.Struct, frozen=True):
    """A rule in the form in which it is asked for every message."""

    resource: Resource
    everywhere: int
    stream: int
    topic: int


_MASKS = {
    code: _Masks(
        rule.resource,
        make_mask(rule.everywhere, EVERYWHERE_FLAGS),
        make_mask(rule.stream, STREAM_FLAGS),
        make_mask(rule.topic, TOPIC_FLAGS),
    )
    for code, rule in RULES.items()
}


def authorize(  # noqa: PLR0911  # one way out per level, nearest first
    state: State,
    user_id: int,
    command: int,
    stream_id: int | None = None,
    topic_id: int | None = None,
    *,
    target_user: int | None = None,
) -> bool:
    """Return whether a user may do this; without a stream or topic, to any of them."""
    assert topic_id is None or stream_id is not None
    masks = _MASKS.get(command)
    if masks is None:
        return False
    if masks.resource is Resource.OPEN or user_id == ROOT_USER:
        return True
    user = state.users.find(user_id)
    if user is None or user.status != UserStatus.ACTIVE:
        return False
    if masks.resource is Resource.OWN:
        return True
    if masks.resource is Resource.USER and target_user == user_id:
        return True
    grants = user.grants
    if grants.everywhere & masks.everywhere:
        return True
    found = None if stream_id is None else grants.streams.get(stream_id)
    if found is None:
        return False
    if found.mask & masks.stream:
        return True
    return topic_id is not None and bool(found.topics.get(topic_id, 0) & masks.topic)
