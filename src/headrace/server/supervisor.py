"""Runs the shards of a node, each in a process of its own, and starts them again if one dies.

```
signal -> stop all, exit 0        a shard ends by itself -> stop all, start all again, with back-off
                                  five times in a minute, or before the node ever served: exit 1
```

Flow: recover.
"""

import asyncio
import logging
import signal
import sys
from collections import deque
from collections.abc import Sequence

from headrace.runtime.bus.ends import count_descriptors
from headrace.runtime.open_files import raise_open_files
from headrace.server import lines
from headrace.server.allocation import ShardPlace
from headrace.server.config.sections import ServerConfig
from headrace.server.crew import Crew, Failure
from headrace.server.messages import Listen, Listening
from headrace.server.opening import prepare_folder

SIGNALS = (signal.SIGTERM, signal.SIGINT)
FAILURES_MAX = 5
FAILURES_SECONDS = 60.0
_OPEN_FILES_SPARE = 64  # besides the lanes: stores, lines, what the interpreter has open
BACKOFF_SECONDS = 0.1  # doubled with every failure of the last minute

_log = logging.getLogger(__name__)


class ShardsFailedError(Exception):
    """The shards of a node cannot be kept running; the message says which and why."""


def _check_open_files(shards: int) -> None:
    """Refuse more shards than this process can make lanes for.

    Raises:
        ShardsFailedError: It may not open so many files.
    """
    allowed, needed = raise_open_files(), count_descriptors(shards) + _OPEN_FILES_SPARE
    if needed > allowed:
        raise ShardsFailedError(
            f"{shards} shards need {needed} open files for their lanes, and this process may have"
            f" {allowed}; take fewer shards, or raise the limit (ulimit -n, LimitNOFILE=)"
        )


class Supervisor:
    """The process of a node of several shards that clients never see."""

    def __init__(
        self,
        config: ServerConfig,
        places: Sequence[ShardPlace],
        *,
        boot_identity: int,
        lock: int,
        is_throwaway: bool,
    ) -> None:
        self._config = config
        self._places = places
        self._boot_identity = boot_identity
        self._lock = lock
        self._is_throwaway = is_throwaway
        self._crew: Crew | None = None
        self._signal = ""
        self._stop = asyncio.Event()
        self._listening: Listening | None = None  # of the first life: later ones have the same
        self._failed_at: deque[float] = deque()

    async def run(self) -> None:
        """Run the node until a signal ends it.

        Raises:
            ShardsFailedError: Shards do not start, or die too often; or signals cannot be handled,
                and no shard is started (SH-38).
            FolderRefusedError: The folder must not be opened.
            OSError: It cannot be used.
        """
        _check_open_files(len(self._places))
        loop = asyncio.get_running_loop()
        try:
            for number in SIGNALS:
                loop.add_signal_handler(number, self._on_signal, number)
        except (RuntimeError, ValueError) as error:
            raise ShardsFailedError(f"signals cannot be handled: {error}") from error
        try:
            while not self._stop.is_set():
                failures = await self._live()
                if failures:
                    await self._judge(failures)
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        sys.stderr.write(lines.stopped_line(self._config) + "\n")

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            return  # The first one counts.
        self._stop.set()
        sys.stderr.write(lines.stopping_line(number.name) + "\n")
        if self._crew is not None:
            self._crew.want_stop()

    async def _live(self) -> list[Failure]:
        """Run all shards once; return what failed."""
        config = self._config
        prepared = prepare_folder(
            config, shard_count=len(self._places), boot_identity=self._boot_identity
        )
        self._crew = Crew(
            config,
            self._places,
            prepared,
            boot_identity=self._boot_identity,
            lock=self._lock,
        )
        try:
            return await self._crew.live(self._addresses(), self._on_listening)
        finally:
            self._crew = None

    def _addresses(self) -> Listen:
        """Return where to listen: where an earlier life did, if there was one."""
        got, config = self._listening, self._config
        return Listen(
            (got.tcp if got else None) or config.tcp.address,
            (got.http if got else None) or config.http.address,
        )

    def _on_listening(self, listening: Listening) -> None:
        if self._listening is not None:
            _log.warning("all %d shards serve again", len(self._places))
            return
        self._listening = listening
        line = lines.ready_line(
            self._config, tcp=listening.tcp, http=listening.http, is_throwaway=self._is_throwaway
        )
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    async def _judge(self, failures: list[Failure]) -> None:
        """Wait before the next life.

        Raises:
            ShardsFailedError: There is none.
        """
        told = "; ".join(map(str, failures))
        if self._listening is None or self._stop.is_set():
            raise ShardsFailedError(told)
        now = asyncio.get_running_loop().time()
        self._failed_at.append(now)
        while now - self._failed_at[0] > FAILURES_SECONDS:
            self._failed_at.popleft()
        count = len(self._failed_at)
        if count >= FAILURES_MAX:
            raise ShardsFailedError(f"{told} (failure {count} in {FAILURES_SECONDS:.0f} s)")
        pause = BACKOFF_SECONDS * 2 ** (count - 1)
        _log.error("%s; all shards start again in %.1f s", told, pause)
        try:
            await asyncio.wait_for(self._stop.wait(), pause)
        except TimeoutError:
            return
