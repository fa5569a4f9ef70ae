"""The index against a model that keeps an object for each op."""

from headrace.base.prng import Prng
from headrace.storage.index import Index
from headrace.storage.records import Place

GROUPS = 3
OPS_MAX = 40
FILES = 4


class Model:
    """What must be held: the newest place of each op."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, int], Place] = {}

    def forget(self, group: int, from_op: int) -> None:
        self.places = {
            (held, op): place
            for (held, op), place in self.places.items()
            if held != group or op < from_op
        }

    def drop_file(self, ordinal: int) -> None:
        self.places = {key: at for key, at in self.places.items() if at.ordinal != ordinal}


def test_any_order_of_writing() -> None:
    prng = Prng(11)
    index, model, ordinal, newest = Index(), Model(), 0, dict.fromkeys(range(GROUPS), 0)
    for turn in range(600):
        group = prng.below(GROUPS)
        way = prng.below(100)
        is_next = way < 70  # else an op comes again, or out of turn
        op = newest[group] + 1 if is_next else prng.between(1, OPS_MAX)
        if way < 92:
            place = Place(
                ordinal,
                header_at=turn,
                header_hash=2**64 - 1 - turn,
                body_at=prng.below(2) * turn,
                body_bytes=turn,
                is_never_held=prng.below(2) == 0,
            )
            index.put(group, op, place)
            model.places[group, op] = place
            newest[group] = max(newest[group], op)
        elif way < 95:
            index.truncate(group, op)
            model.forget(group, op)
            newest[group] = op - 1
        elif way < 96:
            index.drop_group(group)
            model.forget(group, 0)
            newest[group] = 0
        else:
            ordinal += 1
            index.drop_file(ordinal - FILES)
            model.drop_file(ordinal - FILES)
        if newest[group] > OPS_MAX:
            index.truncate(group, 1)
            model.forget(group, 1)
            newest[group] = 0
        _compare(index, model, ordinal)


def _compare(index: Index, model: Model, ordinal: int) -> None:
    for group in range(GROUPS):
        for op in range(1, OPS_MAX + 2):
            assert index.find(group, op) == model.places.get((group, op))
    above = {0: OPS_MAX // 2}
    for file in range(ordinal - FILES, ordinal + 1):
        held = list(index.held_in(file, above))
        assert len(held) == len(dict.fromkeys(held))
        assert sorted(held) == sorted(
            (group, op)
            for (group, op), place in model.places.items()
            if place.ordinal == file and op > above.get(group, 0)
        )


def test_ops_far_apart_cost_what_they_are() -> None:
    index = Index()
    for op in (5, 2**62, 7, 6):
        index.put(1, op, Place(0, op % 97, 0, 0, 0, is_never_held=False))
    assert [index.find(1, op) is not None for op in (4, 5, 6, 7, 8, 2**62)] == [
        False,
        True,
        True,
        True,
        False,
        True,
    ]
    assert list(index.held_in(0, {})) == [(1, 5), (1, 6), (1, 7), (1, 2**62)]
