"""What `--from` can say."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.cli.tail.starts import Newest, Start, parse_start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("end-10", Newest(10)),
        ("0", 0),
        ("4711", 4711),
        ("2026-01-31T12:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_place(text: str, start: Start) -> None:
    assert parse_start(text) == start


def test_how_long_ago() -> None:
    before = datetime.now(UTC)
    start = parse_start("-15min")
    assert isinstance(start, datetime)
    assert before - timedelta(minutes=15) <= start <= datetime.now(UTC) - timedelta(minutes=15)


def test_a_time_without_a_zone_is_the_users_own() -> None:
    start = parse_start("2026-01-31 12:00")
    assert isinstance(start, datetime)
    assert start == datetime(2026, 1, 31, 12).astimezone()


@pytest.mark.parametrize(
    "text", ["", "end-", "end-x", "-", "-5 parsecs", "9" * 30, "-99999999 days"]
)
def test_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is no place to begin: write earliest, latest"):
        parse_start(text)
