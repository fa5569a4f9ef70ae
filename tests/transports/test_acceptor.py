"""Shard 0 accepts for all shards: it deals connections, and counts them for the node (SH-24)."""

import asyncio
import socket

import pytest

from headrace.base.connection_numbers import home_of
from headrace.transports.acceptor import Accepted, Acceptor
from headrace.transports.limits import TcpLimits
from tests.transports.stage import LOOPS, WAIT_SECONDS, run

pytestmark = pytest.mark.parametrize("loop", LOOPS)


class Stage:
    """An acceptor of some homes; what it hands out is kept."""

    def __init__(self, homes: range, limits: TcpLimits | None = None) -> None:
        self.taken: list[Accepted] = []
        self.dropped: list[int] = []
        self.silent: list[int] = []
        self.is_refusing = False
        self.acceptor = Acceptor(
            limits or TcpLimits(),
            homes,
            can_take=lambda home: home not in self.silent,
            take=self._take,
            drop=lambda number, _: self.dropped.append(number),
        )
        self._clients: list[socket.socket] = []

    async def open(self) -> None:
        self._address = await self.acceptor.listen("127.0.0.1", 0)

    def _take(self, accepted: Accepted) -> bool:
        if self.is_refusing:
            accepted.socket.close()
            return False
        self.taken.append(accepted)
        return True

    async def connect(self) -> socket.socket:
        """Connect a client, and wait until the acceptor has decided."""
        acceptor = self.acceptor
        before = len(self.taken), acceptor.refused_count
        client = socket.create_connection(self._address, WAIT_SECONDS)
        self._clients.append(client)
        for _ in range(100):
            if self.is_refusing or (len(self.taken), acceptor.refused_count) != before:
                return client
            await asyncio.sleep(0.01)
        raise AssertionError("nobody has accepted")

    @property
    def homes(self) -> list[int]:
        return [each.home for each in self.taken]

    def close(self) -> None:
        self.acceptor.stop_accepting()
        for each in self._clients:
            each.close()
        for accepted in self.taken:
            accepted.socket.close()


def test_homes_are_dealt_in_turn_and_numbers_name_them(loop: str) -> None:
    """SH-24, SH-25."""

    async def main() -> None:
        stage = Stage(range(3))
        await stage.open()
        try:
            for _ in range(5):
                await stage.connect()
            assert stage.homes == [0, 1, 2, 0, 1]
            numbers = [each.number for each in stage.taken]
            assert [home_of(number) for number in numbers] == stage.homes
            assert len(dict.fromkeys(numbers)) == len(numbers)
        finally:
            stage.close()

    run(loop, main())


@pytest.mark.parametrize("first", [0, 1])
def test_a_shard_that_is_not_heard_of_gets_nobody(loop: str, first: int) -> None:
    """PR12: who connects would wait there; what nobody else can take stays at shard 0."""

    async def main() -> None:
        stage = Stage(range(first, 3))
        stage.silent.append(1)
        await stage.open()
        try:
            for _ in range(4):
                await stage.connect()
            assert stage.homes == ([0, 2, 0, 2] if first == 0 else [2, 2, 2, 2])
            stage.silent.append(2)
            await stage.connect()
            assert stage.homes[-1] == 0
            stage.silent.clear()
            for _ in range(3):
                await stage.connect()
            assert dict.fromkeys(stage.homes[-3:]).keys() >= {1, 2}
        finally:
            stage.close()

    run(loop, main())


def test_a_connection_that_no_home_takes_is_closed_and_not_counted(loop: str) -> None:
    """SH-24."""

    async def main() -> None:
        stage = Stage(range(2))
        await stage.open()
        stage.is_refusing = True
        try:
            client = await stage.connect()
            reader, writer = await asyncio.open_connection(sock=client)
            assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
            writer.close()
            await writer.wait_closed()
            assert len(stage.acceptor) == 0
        finally:
            stage.close()

    run(loop, main())


def test_limits_count_the_connections_of_all_shards(loop: str) -> None:
    """SH-24: however many shards a node has, it has one limit of each kind."""

    async def main() -> None:
        stage = Stage(range(3), TcpLimits(connections_max=4, connections_before_login_max=2))
        await stage.open()
        try:
            for _ in range(4):
                await stage.connect()
            first, second = (each.number for each in stage.taken[:2])
            assert stage.dropped == [first, second], "the oldest strangers go"
            await stage.connect()
            assert stage.acceptor.refused_count == 1
            stage.acceptor.on_gone(first)
            stage.acceptor.on_gone(first)
            await stage.connect()
            assert len(stage.acceptor) == 4
            assert stage.acceptor.refused_count == 1
        finally:
            stage.close()

    run(loop, main())
