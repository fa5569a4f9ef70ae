"""Reads ops from the journal: header and body, verified before they are returned."""

import msgspec

from headrace.base.checksum import xxh3_64
from headrace.base.limits import HEADER_BYTES
from headrace.ports.disk import ReadJournal
from headrace.ports.recovered import Finding
from headrace.storage.config import journal_name
from headrace.storage.journal import Journal
from headrace.storage.outbox import Outbox
from headrace.storage.records import Place, is_body_of


class _Read(msgspec.Struct):
    """One read of two parts; a part is None until it arrives."""

    token: int
    group: int
    op: int
    place: Place
    header: bytes | None = None
    body: bytes | None = None


class Reads:
    """Keeps the pending reads and the completed ones."""

    def __init__(self, journal: Journal, outbox: Outbox) -> None:
        self._journal = journal
        self._outbox = outbox
        self._headers: dict[int, _Read] = {}  # by the token of the part
        self._bodies: dict[int, _Read] = {}
        self._done: list[tuple[int, bytes, bytes]] = []

    def start(self, group: int, op: int, token: int) -> bool:
        """Ask the disk for an op; return whether the journal holds it with a body."""
        place = self._journal.index.find(group, op)
        if place is None or not place.body_at:
            return False
        assert place.header_at + HEADER_BYTES <= place.body_at, "bodies follow the entries"
        read = _Read(token, group, op, place)
        self._headers[self._ask(place, place.header_at, HEADER_BYTES)] = read
        self._bodies[self._ask(place, place.body_at, place.body_bytes)] = read
        return True

    def on_read(self, token: int, data: bytes | None) -> None:
        """Accept one part of a read."""
        if (read := self._headers.pop(token, None)) is not None:
            read.header = data or b""
        elif (read := self._bodies.pop(token, None)) is not None:
            read.body = b"" if data is None else data
        else:
            return
        if read.header is not None and read.body is not None:
            self._done.append(self._verify(read, read.header, read.body))

    def take(self) -> list[tuple[int, bytes, bytes]]:
        """Return the completed reads, each once; a damaged op has neither header nor body."""
        done, self._done = self._done, []
        return done

    def pending(self) -> dict[int, None]:
        """Return the tokens of the reads that are not returned yet."""
        asked = (*self._headers.values(), *self._bodies.values())
        return dict.fromkeys([read.token for read in asked] + [done[0] for done in self._done])

    def check(self) -> None:
        """Assert that each read waits for the parts it lacks."""
        for token, read in self._headers.items():
            assert read.header is None, "a part that has come is not awaited"
            assert token not in self._bodies, "a token stands for one part"
        for read in self._bodies.values():
            assert read.body is None, "a part that has come is not awaited"
            assert read.place.body_at > 0, "only an op with a body is read"
            newest = self._journal.ring.head.ordinal
            assert read.place.ordinal <= newest, "only what was placed is read"

    def _ask(self, place: Place, position: int, length: int) -> int:
        token = self._outbox.new_token()
        file = self._journal.ring.file_of(place.ordinal)
        self._outbox.put(ReadJournal(token, file, position, length))
        return token

    def _verify(self, read: _Read, header: bytes, body: bytes) -> tuple[int, bytes, bytes]:
        place = read.place
        assert place.body_at > 0, "only an op with a body is read"
        if (
            len(header) == HEADER_BYTES
            and xxh3_64(header) == place.header_hash
            and is_body_of(header, body)
        ):
            return read.token, header, body
        if self._journal.index.find(read.group, read.op) == place:
            self._outbox.probes.hit("journal: a read found damage")
            file = journal_name(self._journal.ring.file_of(place.ordinal))
            text = f"op {read.op} of group {read.group} is damaged"
            self._outbox.find(Finding("rot", file, place.header_at, text))
        return read.token, b"", b""
