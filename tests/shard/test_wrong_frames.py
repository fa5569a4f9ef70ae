"""Wrong frames against a whole shard in memory: each is answered or its connection closes.

The shots are those of the fuzz over the socket (`tests/e2e/test_fuzz.py`). Here the disk is as slow
as chance wants it, time passes in every burst, a seed gives the same run again, and whatever brings
the shard down is a traceback. `FUZZ_FRAMES` asks for more, `FUZZ_SEED` for others.
"""

import os

from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.wire.commands.tokens import CREATE_TOKEN, CreateToken
from tests.e2e.mutations import Shooter, Speaker
from tests.shard.whole import Client, Whole
from tools.simulate import tree_seed

FRAMES = int(os.environ.get("FUZZ_FRAMES", "4000"))
BURST_MAX = 16
TICKS_MAX = 4
TICKS_LONG = 1500  # some requests have run out of time by then, and some sessions
OPEN_MAX = 40  # connections that are left open, with what their clients have begun
CLIENTS_FROM = 0x1000
TOKEN = "fuzz-4c1d"  # a name that no shot hits by chance


class Attackers:
    """Opens connections, logged in and not, and fires bursts of shots that are framed right."""

    def __init__(self, seed: int) -> None:
        self.frames = 0
        self._prng = Prng(seed)
        self._shooter = Shooter(self._prng.fork("shots"))
        self._node = Whole()
        root = self._node.client(client=0xF00)
        self._token = root.ask(CREATE_TOKEN, CreateToken(TOKEN, 0)).token
        self._number = CLIENTS_FROM
        self._open: list[Client] = []

    def fire_burst(self) -> None:
        """Fire a burst while the world is slow or not; once it has caught up, see the answers."""
        node, prng = self._node, self._prng
        client = self._connect()
        node.is_syncing, node.is_reading_segments = prng.chance(1, 2), prng.chance(1, 2)
        node.is_verifying = prng.chance(1, 2)
        frames = self._draw(client)
        self.frames += len(frames)
        if prng.chance(1, 2):
            client.post(*frames)
        else:
            for frame in frames:
                client.post(frame)
        node.tick(TICKS_LONG if prng.chance(1, 200) else prng.below(TICKS_MAX))
        if prng.chance(1, 4):
            self._close(client)
        elif prng.chance(3, 4):
            self._catch_up()
            self._check_answers(client, len(frames))

    def _connect(self) -> Client:
        """Give a client that is new, or the one of another connection; it may have logged in."""
        self._catch_up()
        self._number += 2
        number = self._number
        if self._open and self._prng.chance(1, 8):
            number = self._prng.choice(self._open).client
        client = Client(self._node, number)
        if self._prng.chance(7, 10):
            client.login_by_token(self._token)
        self._open.append(client)
        if len(self._open) > OPEN_MAX:
            self._close(self._open[self._prng.below(OPEN_MAX)])
        return client

    def _close(self, client: Client) -> None:
        self._open.remove(client)
        client.close()

    def _catch_up(self) -> None:
        node = self._node
        node.is_syncing = node.is_reading_segments = node.is_verifying = True
        while node.unverified:
            node.step(node.unverified.pop(0))
        node.tick()

    def _draw(self, client: Client) -> list[bytes]:
        """Give a burst; what the transport would refuse is not the shard's to judge."""
        frames = []
        for _ in range(self._prng.between(1, BURST_MAX)):
            shot = self._shooter.shoot(Speaker(client.client, client.session, client.next_number()))
            if shot.is_framed and len(shot.frame) >= HEADER_BYTES:
                frames.append(shot.frame)
        return frames

    def _check_answers(self, client: Client, asked: int) -> None:
        node, connection = self._node, client.connection
        answered = len(node.inbox.pop(connection, []))
        is_closed = any(number == connection for number, _ in node.closed)
        assert answered == asked or (is_closed and answered < asked), (answered, asked)
        node.inbox.clear()  # what open connections are told later, of a session that ends
        node.closed.clear()
        node.audited.clear()


def test_wrong_frames() -> None:
    seed = int(os.environ.get("FUZZ_SEED", str(tree_seed())))
    attackers = Attackers(seed)
    while attackers.frames < FRAMES:
        try:
            attackers.fire_burst()
        except Exception as error:
            error.add_note(f"seed {seed}, after {attackers.frames} frames")
            raise
