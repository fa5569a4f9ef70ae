"""What clients ask and are told becomes the right call of the right register."""

import pytest

from headrace.base.prng import Prng
from headrace.sim.nodes.actions import Action, Actions, Board, WorkloadOptions
from headrace.sim.nodes.linearizable import UNKNOWN, Call, Effect
from headrace.sim.nodes.registers import Key
from headrace.sim.nodes.witness import Witness
from headrace.sim.violation import SimViolationError
from headrace.wire.commands.messages import StoredOffset
from headrace.wire.errors import Code
from headrace.wire.identifiers import Consumer
from headrace.wire.numbers import ConsumerKind

ALONE = Consumer(ConsumerKind.CONSUMER, 2)
GROUPED = Consumer(ConsumerKind.GROUP, "g")
OFFSET: Key = ("offset", "t0", "consumer 2", "1")
OF_GROUP: Key = ("offset", "t0", "group", "1")


@pytest.fixture
def actions() -> Actions:
    board = Board(WorkloadOptions())
    board.topics["t0"] = 2
    board.ends["t0/1"] = 9
    return Actions(board, Prng(1), 1)


def ask(witness: Witness, action: Action, reply: object) -> None:
    witness.accepted(action, witness.asked(action), reply)


def effects(witness: Witness, key: Key) -> list[tuple[Effect, object]]:
    return [(call.effect, call.value) for call in witness.registers.calls_of(key)]


def test_offsets_that_are_stored_read_and_deleted(actions: Actions) -> None:
    witness = Witness()
    store = actions._store("t0", 1, ALONE)
    ask(witness, store, None)
    ask(witness, actions._get_offset("t0", 1, ALONE), StoredOffset(1, 9, 4))
    ask(witness, actions._get_offset("t0", 1, ALONE), None)
    ask(witness, actions._drop("t0", 1, ALONE), None)
    assert effects(witness, OFFSET) == [
        (Effect.SET, store.offset),
        (Effect.GET, 4),
        (Effect.GET, None),
        (Effect.DROP, None),
    ]


def test_an_offset_that_a_poll_stored_comes_late_or_never(actions: Actions) -> None:
    witness = Witness()
    witness.auto_committed("t0/1", ConsumerKind.GROUP, 0, 5)
    assert witness.registers.calls_of(OF_GROUP) == [Call(1, None, Effect.RAISE, 5)]


def test_a_group_poll_tells_what_is_stored(actions: Actions) -> None:
    witness = Witness()
    poll = actions._poll("t0", 1, GROUPED)
    witness.auto_committed("t0/1", ConsumerKind.GROUP, 0, 5)
    witness.served(poll, witness.asked(poll), 6, is_start=False)
    witness.registers.check()
    witness.served(poll, witness.asked(poll), 9, is_start=False)
    with pytest.raises(SimViolationError, match="H10"):
        witness.registers.check()


def test_a_purge_clears_the_offsets_of_its_topic(actions: Actions) -> None:
    witness = Witness()
    ask(witness, actions._store("t0", 1, ALONE), None)
    ask(witness, actions._purge_topic("t0"), None)
    ask(witness, actions._get_offset("t0", 1, ALONE), None)
    witness.registers.check()


def test_refusals_tell_of_names(actions: Actions) -> None:
    witness = Witness()
    for action, code in (
        (actions._create_group("t0"), Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS),
        (actions._delete_group("t0"), Code.CONSUMER_GROUP_ID_NOT_FOUND),
        (actions.send("t0"), Code.TOPIC_ID_NOT_FOUND),
        (actions.send("t0"), Code.STREAM_ID_NOT_FOUND),
        (actions.send("t0"), Code.PARTITION_NOT_FOUND),
        (actions.send("t0"), Code.RESOURCE_NOT_FOUND),
        (actions._drop("t0", 1, ALONE), Code.CONSUMER_OFFSET_NOT_FOUND),
    ):
        witness.refused(action, witness.asked(action), code)
    # What follows the wish to delete the group is about another key.
    assert effects(witness, ("group", "t0")) == [(Effect.PRESENT, None), (Effect.GET, None)]
    for key in (("topic", "t0"), ("stream", "s"), OFFSET):
        assert effects(witness, key) == [(Effect.GET, None)]
    assert not any(key[0] == "user" for key in witness.registers._calls)


def test_a_deleted_topic_takes_its_group_along_and_ends_its_offsets(actions: Actions) -> None:
    witness = Witness()
    ask(witness, actions._store("t0", 1, ALONE), None)
    ask(witness, actions._delete_topic("t0"), None)
    ask(witness, actions._store("t0", 1, ALONE), None)
    assert effects(witness, ("topic", "t0")) == [(Effect.DROP, None)]
    assert effects(witness, ("group", "t0")) == [(Effect.CLEAR, None)]
    assert len(effects(witness, OFFSET)) == 1


def test_what_was_never_answered_may_have_been_done(actions: Actions) -> None:
    witness = Witness()
    for action in (actions._create_user(""), actions._get_offset("t0", 1, ALONE)):
        witness.unanswered(action, witness.asked(action))
    (made,) = [key for key in witness.registers._calls if key[0] == "user"]
    assert witness.registers.calls_of(made) == [Call(1, None, Effect.MAKE, UNKNOWN)]
    assert effects(witness, OFFSET) == []


def test_a_topic_of_which_a_power_cut_took_the_end_is_judged_no_further(actions: Actions) -> None:
    witness = Witness()
    ask(witness, actions._store("t0", 1, ALONE), None)
    witness.lost("t0")
    ask(witness, actions._get_offset("t0", 1, ALONE), None)
    witness.registers.check()
