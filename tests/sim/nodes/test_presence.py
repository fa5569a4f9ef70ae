"""What was made is found, what is gone is not, and messages go where they were sent."""

import pytest

from headrace.base.ids import Namespace, PartitionId, StreamId, TopicId, pack_namespace
from headrace.base.placement import owner_of
from headrace.sim.nodes.history import Incarnation
from headrace.sim.nodes.presence import Choices, Place, Presence, Purges
from headrace.sim.violation import SimViolationError

HERE, THERE = Place(0, 1, 1), Place(0, 1, 2)
GROUP = pack_namespace(Namespace(StreamId(0), TopicId(0), PartitionId(0)))
CLIENT, REQUEST, COUNT = 7, 3, 3


@pytest.fixture
def presence() -> Presence:
    """A partition is made by op 4, deleted by op 6, and made again by op 8."""
    made = Presence()
    made.changed(4, {"t/0": 4})
    made.changed(5, {"t/0": 4})
    made.changed(6, {})
    made.changed(8, {"t/0": 8})
    return made


def test_what_was_there_all_the_time_is_found(presence: Presence) -> None:
    presence.check_missed("t/0", 7)
    presence.check_missed("t/1", 8)
    with pytest.raises(SimViolationError, match="H13"):
        presence.check_missed("t/0", 8)


def test_what_a_place_has_told_as_gone_is_not_met_there(presence: Presence) -> None:
    presence.check_met("t/0", presence.told_at(HERE), 4)
    presence.told(HERE, 6)
    presence.check_met("t/0", presence.told_at(THERE), 4)
    presence.check_met("t/0", presence.told_at(HERE))
    with pytest.raises(SimViolationError, match="H13"):
        presence.check_met("t/0", presence.told_at(HERE), 4)


def test_what_was_told_nowhere_known_counts_for_all(presence: Presence) -> None:
    presence.told(None, 8)
    presence.told(HERE, 6)
    assert (presence.newest_told, presence.told_at(HERE)) == (8, 6)


def test_a_forwarded_message_goes_into_what_its_home_chose() -> None:
    owner = owner_of(GROUP, COUNT)
    home = (owner + 1) % COUNT
    choices = Choices()
    assert not choices.check(Incarnation(GROUP, 4), CLIENT, REQUEST), "nothing is known of it"
    choices.asked(CLIENT, REQUEST, home, COUNT)
    choices.forwarded(CLIENT, REQUEST, Incarnation(GROUP, 4))
    assert choices.check(Incarnation(GROUP, 4), CLIENT, REQUEST)
    with pytest.raises(SimViolationError, match="H14"):
        choices.check(Incarnation(GROUP, 8), CLIENT, REQUEST)
    choices.asked(CLIENT, REQUEST, owner, COUNT)
    assert not choices.check(Incarnation(GROUP, 8), CLIENT, REQUEST), "its owner may be its home"


def test_a_purge_is_told_once_all_that_is_left_of_a_topic_has_applied_it() -> None:
    presence, purges = Presence(), Purges()
    first, second, other = (Incarnation(GROUP + each, 4) for each in range(3))
    decided = {("t/0", first): 1, ("t/1", second): 1, ("u/0", other): 1}
    presence.changed(4, {"t/0": 4, "t/1": 4, "u/0": 4})
    purges.decided(9, decided)
    purges.applied(first, 1)
    with pytest.raises(SimViolationError, match="H15"):
        purges.check(9, "t", presence)
    presence.changed(10, {"t/0": 4, "u/0": 4})
    purges.check(9, "t", presence)
    with pytest.raises(SimViolationError, match="H15"):
        purges.check(9, "u", presence)
