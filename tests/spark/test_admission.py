"""Admission: a limit is kept, every batch gets on, and nothing goes back."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.admission import admit, clip
from headrace.spark.offsets import Key, Position

KEYS = [Key("a/b", number) for number in range(4)]
PLACES = st.dictionaries(
    st.sampled_from(KEYS), st.builds(Position, st.just(1), st.just(0), st.integers(0, 99))
)


def total(places: dict[Key, Position]) -> int:
    return sum(place.next for place in places.values())


def begun(start: dict[Key, Position], latest: dict[Key, Position]) -> dict[Key, Position]:
    return {key: Position(1, 0, 0) for key in latest} | start


@given(PLACES, PLACES, st.none() | st.integers(1, 200))
def test_the_limit_is_kept_and_nothing_goes_back(
    start: dict[Key, Position], latest: dict[Key, Position], rows_max: int | None
) -> None:
    base = begun(start, latest)
    admitted = admit(start, base, latest, rows_max=rows_max)
    waiting = sum(max(latest[key].next - base[key].next, 0) for key in latest)
    taken = total(base | admitted) - total(base)
    assert taken == (waiting if rows_max is None else min(rows_max, waiting))
    for key, place in admitted.items():
        assert place.next >= base[key].next
        assert place.next <= max(base[key].next, latest[key].next if key in latest else 0)


@given(PLACES, PLACES, st.integers(1, 50))
def test_batches_reach_the_end_and_then_stand_still(
    start: dict[Key, Position], latest: dict[Key, Position], rows_max: int
) -> None:
    for _ in range(400):
        after = admit(start, begun(start, latest), latest, rows_max=rows_max)
        if after == start:
            break
        start = after
    assert all(start.get(key, Position(1, 0, 0)).next >= latest[key].next for key in latest)


def test_shares_are_in_proportion() -> None:
    start = {KEYS[0]: Position(1, 0, 0), KEYS[1]: Position(1, 0, 0)}
    latest = {KEYS[0]: Position(1, 0, 900), KEYS[1]: Position(1, 0, 100)}
    admitted = admit(start, start, latest, rows_max=10)
    assert [admitted[key].next for key in KEYS[:2]] == [9, 1]


def test_a_log_made_anew_counts_from_its_beginning() -> None:
    start = {KEYS[0]: Position(1, 0, 500)}
    latest = {KEYS[0]: Position(2, 0, 20)}
    assert admit(start, start, latest, rows_max=5) == {KEYS[0]: Position(2, 0, 5)}


def test_a_new_partition_without_messages_is_not_named_yet() -> None:
    start = {KEYS[0]: Position(1, 0, 5)}
    latest = {KEYS[0]: Position(1, 0, 5), KEYS[1]: Position(1, 0, 0)}
    assert admit(start, begun(start, latest), latest) == start


def test_a_target_hides_what_came_after_it() -> None:
    target = {KEYS[0]: Position(1, 0, 5), KEYS[2]: Position(1, 0, 5)}
    latest = {
        KEYS[0]: Position(1, 0, 9),
        KEYS[1]: Position(1, 0, 9),
        KEYS[2]: Position(1, 0, 3),
    }
    assert clip(latest, target) == {KEYS[0]: Position(1, 0, 5), KEYS[2]: Position(1, 0, 3)}
