"""A shard's place among several: its lanes, and the sockets that shard 0 hands over (SH-24).

```
shard 0   Acceptor -> Doors: kept here, or frame and descriptor to its home
shard k   Doors <- descriptor: the transport takes it
```

Flow: receive.
"""

import asyncio
from collections.abc import Callable

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.base.placement import METADATA_SHARD, Placement
from headrace.ports.host import LaneFacts
from headrace.ports.network import CloseWanted, ConnectionOpened
from headrace.runtime.bus.bus import Bus
from headrace.runtime.bus.descriptors import DescriptorReceiver, DescriptorSender, Handed
from headrace.runtime.pump import Pump
from headrace.server.config.sections import ServerConfig
from headrace.server.opening import Prepared
from headrace.server.settings import tcp_limits
from headrace.transports.acceptor import Accepted, Acceptor
from headrace.transports.tcp import TcpListener
from headrace.wire.bus.handover import CONNECTION_SETUP, ConnectionSetupHeader
from headrace.wire.numbers import Transport


class Joined(msgspec.Struct, frozen=True):
    """What one shard of several is given: its number, the stores of the node, its lanes."""

    placement: Placement
    prepared: Prepared
    bus: Bus
    cpus: tuple[int, ...] = ()

    def lanes(self) -> tuple[LaneFacts, ...]:
        """Return what waits for each other shard."""
        shard, shard_count = self.placement
        bus = self.bus
        return tuple(
            LaneFacts(member, *bus.waiting(member), bus.places_taken(member))
            for member in range(shard_count)
            if member != shard
        )


class Doors:
    """How connections reach one shard of several."""

    def __init__(
        self,
        joined: Joined,
        config: ServerConfig,
        tcp: TcpListener,
        pump: Pump,
        hears: Callable[[int], bool],
    ) -> None:
        """Make them; `hears` says of a shard whether it has been heard of lately."""
        shard, shard_count = joined.placement
        self._shard = shard
        self._tcp = tcp
        self._pump = pump
        self._senders: dict[int, DescriptorSender] = {}
        self._receiver: DescriptorReceiver | None = None
        self.acceptor: Acceptor | None = None
        bus = joined.bus
        if shard != METADATA_SHARD:
            self._receiver = DescriptorReceiver(bus.take_handover(METADATA_SHARD), own=shard)
            return
        for member in range(1, shard_count):
            self._senders[member] = DescriptorSender(
                bus.take_handover(member), own=shard, member=member
            )
        first = 1 if config.server.skip_shard_zero_for_clients else 0
        self.acceptor = Acceptor(
            tcp_limits(config),
            range(first, shard_count),
            can_take=lambda home: hears(home) and self._senders[home].has_room(),
            take=self._take,
            drop=lambda number, reason: pump.tell(CloseWanted(number, reason)),
        )
        tcp.on_gone = self.acceptor.on_gone

    def open(self) -> None:
        """Take what shard 0 hands over from now on, in the running loop."""
        if self._receiver is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._receiver.fileno(), self._on_handed, self._receiver)

    def _take(self, accepted: Accepted) -> bool:
        """Hand a connection to its home; return whether that is possible."""
        if accepted.home == self._shard:
            self._tcp.adopt(accepted.socket, accepted.number)
            return True
        address = accepted.address.encode()
        header = ConnectionSetupHeader(
            size=HEADER_BYTES + len(address), connection=accepted.number, transport=Transport.TCP
        )
        # Before the home can forward its first request.
        frame = CONNECTION_SETUP.encode(header) + address
        refused = self._senders[accepted.home].hand_over(frame, accepted.socket)
        if refused is not None:
            self._pump.tell(refused)
            return False
        self._pump.tell(ConnectionOpened(accepted.number, Transport.TCP, accepted.address))
        return True

    def _on_handed(self, receiver: DescriptorReceiver) -> None:
        for got in receiver.receive():
            if isinstance(got, Handed):
                assert isinstance(got.header, ConnectionSetupHeader), "there are no other nodes yet"
                self._tcp.adopt(got.socket, got.header.connection)
            else:
                self._pump.tell(got)
        if not receiver.is_open:  # Shard 0 is gone: the supervisor ends this shard too.
            asyncio.get_running_loop().remove_reader(receiver.fileno())

    def close(self) -> None:
        """Take and hand over nothing more."""
        if self.acceptor is not None:
            self.acceptor.stop_accepting()
        if self._receiver is not None:
            asyncio.get_running_loop().remove_reader(self._receiver.fileno())
            self._receiver.close()
            self._receiver = None
        for sender in self._senders.values():
            sender.close()
        self._senders.clear()
