"""What waits for a gap to close is counted, once each, for all groups together."""

from headrace.vsr.fetched import Fetched, Held
from headrace.wire.replica.prepares import PrepareHeader


def put(fetched: Fetched, op: int, body: bytes) -> None:
    fetched.put(PrepareHeader(op=op), b"", body)


def test_all_groups_are_counted_together() -> None:
    held = Held()
    one, other = Fetched(held), Fetched(held)
    put(one, 5, b"five")
    put(one, 6, b"six")
    put(other, 5, b"fifth")
    assert (held.count, held.body_bytes) == (3, 12)
    one.clear()
    assert (held.count, held.body_bytes) == (1, 5)
    found = other.pop(5)
    assert found is not None
    assert found.body == b"fifth"
    assert (held.count, held.body_bytes) == (0, 0)


def test_an_op_that_comes_twice_is_counted_once() -> None:
    held = Held()
    fetched = Fetched(held)
    put(fetched, 5, b"five")
    put(fetched, 5, b"longer")
    assert 5 in fetched
    assert (held.count, held.body_bytes) == (1, 6)
    assert fetched.pop(7) is None
    assert (held.count, held.body_bytes) == (1, 6)


def test_what_is_not_asked_for_any_more_is_dropped() -> None:
    held = Held()
    fetched = Fetched(held)
    for op in range(1, 6):
        put(fetched, op, b"body")
    fetched.keep(2, 4)
    assert [op for op in range(1, 6) if op in fetched] == [2, 3, 4]
    assert (held.count, held.body_bytes) == (3, 12)
