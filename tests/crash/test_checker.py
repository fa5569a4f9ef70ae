"""The checkers see what they must see: one made-up bad history for each rule."""

import pytest

from tests.crash.checker import OffsetChecker, PartitionChecker
from tests.crash.client import Outcome, Send
from tests.crash.payloads import Key, Seen, make_batch, make_payload, read_batches, read_key

PLACE = ("s", "t", 0)


def send(
    request: int,
    base_offset: int,
    *,
    outcome: Outcome = "ok",
    times: tuple[int, int] | None = None,
    client: int = 1,
) -> Send:
    keys = [Key(client, request, index, 40 + index) for index in range(2)]
    invoked, returned = times or (request * 10, request * 10 + 5)
    return Send(PLACE, keys, invoked, returned, outcome, base_offset)


def read(*sends: Send, start: int = 0) -> list[Seen]:
    keys = [key for each in sends for key in each.keys]
    return [Seen(offset, key) for offset, key in enumerate(keys, start)]


def rules(sends: list[Send], *reads: list[Seen]) -> list[str]:
    checker = PartitionChecker()
    return [found.rule for each in reads for found in checker.check(sends, each)]


GOOD = [send(1, 0), send(2, 2), send(3, 4)]


def test_a_good_history_is_good() -> None:
    assert rules(GOOD, read(*GOOD[:0]) or read(*GOOD), read(*GOOD)) == []
    unknown = send(4, -1, outcome="info")
    assert rules([*GOOD, unknown], read(*GOOD), read(*GOOD, unknown)) == []


@pytest.mark.parametrize(
    ("rule", "sends", "reads"),
    [
        ("H1", GOOD, [read(*GOOD[:2])]),
        ("H1", GOOD, [read(GOOD[0], GOOD[2], GOOD[1])]),
        ("H2", GOOD[:2], [read(*GOOD)]),
        ("H2", [*GOOD[:2], send(3, -1, outcome="fail")], [read(*GOOD)]),
        ("H2", GOOD, [[*read(*GOOD), Seen(6, None)]]),
        ("H3", GOOD[:1], [[*read(GOOD[0])], [*read(GOOD[0])[:1], Seen(1, None)]]),
        ("H4", GOOD, [read(*GOOD, GOOD[0])]),
        ("H4", [*GOOD, send(4, -1, outcome="info")], [[*read(*GOOD), Seen(6, Key(1, 4, 1, 41))]]),
        ("H5", GOOD, [[each for each in read(*GOOD) if each.offset != 2]]),
        ("H5", GOOD, [read(*GOOD, start=1)]),
        ("H6", [send(1, 2), send(2, 0)], [read(send(2, 0), send(1, 2))]),
        (
            "H6",
            [send(1, 2, times=(0, 1)), send(1, 0, times=(2, 3), client=2)],
            [read(send(1, 0, client=2), send(1, 2))],
        ),
        ("H8", GOOD[:0], [read(send(9, -1, outcome="info")), []]),
    ],
)
def test_a_bad_history_is_seen(rule: str, sends: list[Send], reads: list[list[Seen]]) -> None:
    assert rule in rules(sends, *reads)


def test_a_reported_loss_is_no_violation_and_any_other_is() -> None:
    late = send(4, 10)
    seen = [*read(*GOOD[:2]), *read(late, start=10)]
    checker = PartitionChecker()
    assert checker.check(GOOD, read(*GOOD)) == []
    checker.lose(4, 10)
    assert checker.check([*GOOD, late], seen) == []
    assert {each.rule for each in checker.check([*GOOD, late], seen[:3] + seen[4:])} == {
        "H1",
        "H4",
        "H5",
        "H8",
    }


def test_stored_offsets() -> None:
    checker = OffsetChecker()
    assert checker.check(None, 0) == []
    checker.ask(5)
    assert checker.check(None, 10) == checker.check(5, 10) == []
    checker.confirm()
    assert [each.rule for each in checker.check(None, 10)] == ["H10"]
    checker.ask(7)
    assert checker.check(5, 10) == checker.check(7, 10) == []
    assert [each.rule for each in checker.check(6, 10)] == ["H10"]
    assert [each.rule for each in checker.check(7, 7)] == ["H10"]


def test_a_payload_is_known_by_every_byte() -> None:
    key = Key(7, 8, 9, 100)
    payload = make_payload(key)
    assert read_key(payload) == key
    for index in range(len(payload)):
        assert (
            read_key(payload[:index] + bytes([payload[index] ^ 1]) + payload[index + 1 :]) is None
        )
    assert read_key(payload[:-1]) is None
    assert [each.key for each in read_batches(make_batch([key, Key(7, 8, 10, 60)]))] == [
        key,
        Key(7, 8, 10, 60),
    ]
