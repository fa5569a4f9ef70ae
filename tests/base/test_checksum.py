from headrace.base.checksum import xxh3_64, xxh32


def test_xxh3_64_of_what_the_released_sdk_hashes() -> None:
    assert xxh3_64(b"") == 0x2D06800538D394C2
    assert xxh3_64(b"\x02s1") == 0x2F81B4A25A20BEC2


def test_xxh32_of_the_empty_key() -> None:
    assert xxh32(b"") == 0x02CC5D05
