import pytest

from headrace.base.units import parse_bytes, parse_duration


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("64 KiB", 65536),
        ("1GiB", 1 << 30),
        ("1.5 kb", 1500),
        (" 2 tb ", 2 * 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1 XB", "-1", "1.5", "1 GiB 2", "0.3 KiB", "1e3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0 s", 0),
        ("250 ms", 250_000),
        ("30 s", 30_000_000),
        ("1.5 s", 1_500_000),
        ("1 h 30 min", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("7 days", 7 * 86_400_000_000),
        ("2 weeks", 14 * 86_400_000_000),
        ("3us", 3),
    ],
)
def test_durations(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize("text", ["", "s", "5", "5 years", "-1 s", "1 s x", "0.5 us"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_duration(text)
