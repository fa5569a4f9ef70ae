import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.prng import Prng


def test_a_seed_means_what_it_always_meant() -> None:
    """Stored seeds would lose their story if these numbers changed."""
    prng = Prng(0)
    assert [prng.u64() for _ in range(4)] == [
        11091344671253066420,
        13793997310169335082,
        1900383378846508768,
        7684712102626143532,
    ]
    assert Prng(7).bytes(5).hex() == Prng(7).bytes(9)[:5].hex()


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_below_stays_below(seed: int, bound: int) -> None:
    assert 0 <= Prng(seed).below(bound) < bound


def test_below_is_even() -> None:
    prng = Prng(1)
    counts = [0, 0, 0]
    for _ in range(3000):
        counts[prng.below(3)] += 1
    assert min(counts) > 900


def test_chance_knows_its_ends() -> None:
    prng = Prng(2)
    assert not any(prng.chance(0, 10) for _ in range(100))
    assert all(prng.chance(10, 10) for _ in range(100))


def test_forks_do_not_disturb_each_other() -> None:
    def draws(extra: int) -> list[int]:
        root = Prng(3)
        network, disk = root.fork("network"), root.fork("disk")
        for _ in range(extra):
            network.u64()
        return [disk.u64() for _ in range(3)]

    assert draws(0) == draws(5)


def test_forks_of_one_name_differ() -> None:
    root = Prng(4)
    assert root.fork("a").u64() != root.fork("a").u64()


@given(st.integers(0, 2**64 - 1), st.lists(st.integers()))
def test_shuffle_keeps_what_there_is(seed: int, items: list[int]) -> None:
    shuffled = list(items)
    Prng(seed).shuffle(shuffled)
    assert sorted(shuffled) == sorted(items)


def test_choice_and_between_reach_both_ends() -> None:
    prng = Prng(5)
    assert {prng.choice("ab") for _ in range(50)} == {"a", "b"}
    assert {prng.between(-1, 1) for _ in range(50)} == {-1, 0, 1}


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_is_64_bits(seed: int) -> None:
    with pytest.raises(AssertionError):
        Prng(seed)
