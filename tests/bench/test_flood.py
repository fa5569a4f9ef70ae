"""The flood of logins is one: each login is a client of its own, and what came of it is counted."""

import asyncio

import pytest

from bench.flood import flood, with_own_client
from bench.frames import Account, make_login
from bench.login import TARGETS
from headrace.wire.requests import REQUEST
from tests.node import running_node


def test_each_login_is_another_client_and_else_the_same() -> None:
    frame = make_login(Account("iggy", "iggy"))
    made = [with_own_client(frame) for _ in range(3)]
    clients = {REQUEST.decode(each).client for each in made}
    assert len(clients) == 3
    assert 0 not in clients
    assert {each[:128] + each[144:] for each in made} == {frame[:128] + frame[144:]}


@pytest.mark.slow
def test_every_login_is_counted_once() -> None:
    with running_node() as node:
        right, wrong = (make_login(Account("iggy", password)) for password in ("iggy", "guess"))
        logged_in = asyncio.run(flood(node.tcp.port, right, rate=100, seconds=0.2))
        refused = asyncio.run(flood(node.tcp.port, wrong, rate=100, seconds=0.1))
    assert logged_in == {"logged in": 20}
    assert refused == {"refused: session evicted for INVALID_CREDENTIALS": 10}
    gone = asyncio.run(flood(node.tcp.port, right, rate=100, seconds=0.03))
    assert list(gone.values()) == [3]
    assert all(outcome.startswith("no connection") for outcome in gone)


def test_what_is_aimed_at() -> None:
    flooded, equal = TARGETS
    good = {"p99 alone": 100.0, "p99 flooded": 199.0}
    assert flooded.judge(good).is_met
    assert not flooded.judge(good | {"p99 flooded": 201.0}).is_met
    assert equal.judge({"slowest answer": 104.0, "fastest answer": 100.0}).is_met
    assert not equal.judge({"slowest answer": 106.0, "fastest answer": 100.0}).is_met
