"""Hands accepted sockets from shard 0 to another shard: a frame with one descriptor (SH-24).

Invariants: after `hand_over` the sender has no copy, whether the frame left or was refused;
            a receiver owns a descriptor only together with a frame that it understood, and closes
            every other.
"""

import array
import errno
import os
import select
import socket
from collections.abc import Iterator

import msgspec

from headrace.base.limits import HEADER_BYTES, NAME_BYTES_MAX
from headrace.ports.bus import BusRefused, DropReason, FrameLost
from headrace.wire.bus.decode import DESCRIPTOR_KINDS, decode_bus
from headrace.wire.bus.handover import ConnectionSetupHeader, SlotHeader
from headrace.wire.bus.prefix import PREFIX_BYTES, decode_prefix, encode_prefix
from headrace.wire.errors import RemoteError
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind

_FRAME_BYTES_MAX = HEADER_BYTES + NAME_BYTES_MAX
# One more than is read as a message: a longer one shows by its length.
_MESSAGE_BYTES = PREFIX_BYTES + _FRAME_BYTES_MAX + 1
_DESCRIPTORS_MAX = 4  # room for more than the one that is allowed, so that they can be closed
_DESCRIPTOR_BYTES = array.array("i").itemsize
_ANCILLARY_BYTES = socket.CMSG_SPACE(_DESCRIPTORS_MAX * _DESCRIPTOR_BYTES)
_MESSAGES_MAX = 256  # in one call
# The receiver does not keep up: its queue is full, or too many descriptors are on their way.
_FULL = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)


class Handed(msgspec.Struct, frozen=True):
    """A socket that another shard accepted; whoever gets it closes it."""

    kind: FrameKind
    header: ConnectionSetupHeader | SlotHeader
    address: str  # of the peer, if the kind has one
    socket: socket.socket


class DescriptorSender:
    """Shard 0's end towards one shard."""

    def __init__(self, sending: socket.socket, *, own: int, member: int) -> None:
        assert sending.gettimeout() == 0
        self._socket = sending
        self._own = own
        self._member = member
        self._room = select.poll()
        self._room.register(sending, select.POLLOUT)

    def has_room(self) -> bool:
        """Whether the receiver keeps up: its queue is far from full, and it is there."""
        return any(found == select.POLLOUT for _, found in self._room.poll(0))

    def hand_over(self, frame: bytes, given: socket.socket) -> BusRefused | None:
        """Send a socket with its frame and close it here; return why it was refused, if it was."""
        kind = frame[KIND_OFFSET]
        assert kind in DESCRIPTOR_KINDS
        assert len(frame) <= _FRAME_BYTES_MAX
        prefix = encode_prefix(len(frame), target=self._member, sender=self._own)
        try:
            socket.send_fds(self._socket, [prefix, frame], [given.fileno()])
        except OSError as error:
            is_full = error.errno in _FULL
            reason = DropReason.FULL if is_full else DropReason.DISCONNECTED
            return BusRefused(self._member, kind, 0, reason)
        finally:
            given.close()
        return None

    def close(self) -> None:
        """Close the end."""
        self._socket.close()


class DescriptorReceiver:
    """The end of a shard that gets sockets from shard 0."""

    def __init__(self, receiving: socket.socket, *, own: int, member: int = 0) -> None:
        assert receiving.gettimeout() == 0
        self._socket = receiving
        self._own = own
        self._member = member
        self.is_open = True

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._socket.fileno()

    def receive(self) -> Iterator[Handed | FrameLost]:
        """Yield what has arrived, each socket once; what cannot be used is closed and reported.

        Once the other end is closed `is_open` is false.
        """
        for _ in range(_MESSAGES_MAX):
            try:
                data, descriptors, is_cut = self._receive()
            except BlockingIOError:
                return
            except OSError:
                data, descriptors, is_cut = b"", [], False
            if not data and not descriptors:
                self.is_open = False
                return
            yield self._take(data, descriptors, is_cut=is_cut)

    def close(self) -> None:
        """Close the end; sockets that nobody has received are closed with it."""
        self._socket.close()

    def _receive(self) -> tuple[bytes, list[int], bool]:
        data, ancillary, flags, _ = self._socket.recvmsg(
            _MESSAGE_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(content) - len(content) % _DESCRIPTOR_BYTES
                descriptors.frombytes(content[:whole])
        return data, list(descriptors), bool(flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC))

    def _take(self, data: bytes, descriptors: list[int], *, is_cut: bool) -> Handed | FrameLost:
        try:
            handed = self._read(data, descriptors, is_cut=is_cut)
        except (RemoteError, OSError):
            for descriptor in descriptors:
                os.close(descriptor)
            kind = data[PREFIX_BYTES + KIND_OFFSET] if len(data) > PREFIX_BYTES + KIND_OFFSET else 0
            return FrameLost(self._member, kind, DropReason.DELIVERY_FAILED)
        return handed

    def _read(self, data: bytes, descriptors: list[int], *, is_cut: bool) -> Handed:
        size, target = decode_prefix(data, 0, sender=self._member, frame_bytes_max=_FRAME_BYTES_MAX)
        frame = data[PREFIX_BYTES:]
        if is_cut or len(descriptors) != 1 or target != self._own or size != len(frame):
            raise RemoteError(f"{len(descriptors)} descriptors with a frame for member {target}")
        kind, header = decode_bus(frame)
        if not isinstance(header, ConnectionSetupHeader | SlotHeader) or (
            kind not in DESCRIPTOR_KINDS
        ):
            raise RemoteError(f"a descriptor with a {kind.name}")
        taken = socket.socket(fileno=descriptors[0])
        taken.settimeout(0)
        return Handed(kind, header, str(frame[HEADER_BYTES:], "utf-8"), taken)
