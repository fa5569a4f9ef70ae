"""The mark by which a start of the same boot knows the time (CK1)."""

from pathlib import Path

import pytest

from headrace.server import clock_mark
from headrace.server.clock_mark import CLOCK_NAME, ClockMark, supported_time

BOOT = 7
NOON = 1_800_000_000_000_000
HOUR = 3_600_000_000


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The monotonic clock, which stands still until a test moves it."""
    clock = [50 * HOUR]
    monkeypatch.setattr(clock_mark, "monotonic_micros", lambda: clock[0])
    return clock


def test_a_start_of_the_same_boot_knows_how_long_it_was_down(
    tmp_path: Path, monotonic: list[int]
) -> None:
    ClockMark(tmp_path, BOOT).keep(NOON)
    monotonic[0] += 3 * HOUR
    assert supported_time(tmp_path, BOOT) == NOON + 3 * HOUR


def test_every_mark_of_a_boot_says_the_same(tmp_path: Path, monotonic: list[int]) -> None:
    mark = ClockMark(tmp_path, BOOT)
    mark.keep(NOON)
    before = (tmp_path / CLOCK_NAME).read_bytes()
    monotonic[0] += HOUR
    mark.keep(NOON + HOUR)
    assert (tmp_path / CLOCK_NAME).read_bytes() == before, "nothing new, nothing written"
    mark.keep(NOON + 5 * HOUR)  # An operator accepted a leap.
    assert supported_time(tmp_path, BOOT) == NOON + 5 * HOUR


def test_another_boot_or_none_supports_nothing(tmp_path: Path, monotonic: list[int]) -> None:
    assert supported_time(tmp_path, BOOT) == 0
    ClockMark(tmp_path, BOOT).keep(NOON)
    assert supported_time(tmp_path, BOOT + 1) == 0
    monotonic[0] -= HOUR
    assert supported_time(tmp_path, BOOT) == 0, "a clock that ran backwards is another one"
    ClockMark(tmp_path / "none", 0).keep(NOON)
    assert supported_time(tmp_path / "none", 0) == 0


def test_any_flipped_or_missing_byte_is_noticed(tmp_path: Path, monotonic: list[int]) -> None:
    ClockMark(tmp_path, BOOT).keep(NOON)
    data = (tmp_path / CLOCK_NAME).read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        (tmp_path / CLOCK_NAME).write_bytes(damaged)
        assert supported_time(tmp_path, BOOT) == 0
        (tmp_path / CLOCK_NAME).write_bytes(data[:position])
        assert supported_time(tmp_path, BOOT) == 0


def test_a_mark_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ClockMark(tmp_path / "missing", BOOT).keep(NOON)
    assert "cannot be written" in caplog.text
