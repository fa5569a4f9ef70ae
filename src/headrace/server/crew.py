"""One life of all shards of a node: started, brought up together, watched, ended together.

```
spawn all -> Opened x N -> one moment? -> Go -> StoresOpen x N -> Begin -> Loaded x N -> Listen
  -> serve until a stop is wanted or a shard ends -> FINISH -> Finished x N -> END -> all ended
```

A shard that ends by itself ends all of them (SH-35). One deadline covers the end of all; whoever is
alive then is killed and reported (SH-36, SH-37).

Flow: recover.
"""

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.base.ids import ShardId
from headrace.base.placement import METADATA_SHARD, Placement
from headrace.runtime.bus.ends import MadeBus, make_bus
from headrace.runtime.control import Line, make_line
from headrace.runtime.stop_flag import Wish, make_stop_flag
from headrace.server.allocation import ShardPlace
from headrace.server.config.kinds import SECOND
from headrace.server.config.sections import ServerConfig
from headrace.server.messages import (
    Begin,
    Failed,
    Finished,
    FromShard,
    Go,
    Listen,
    Listening,
    Loaded,
    Opened,
    Setup,
    StoresOpen,
)
from headrace.server.opening import Prepared, finish_opening

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.storage.moments import Moment

PROGRAM = "headrace.server.shard_process"

_log = logging.getLogger(__name__)


class Failure(msgspec.Struct, frozen=True):
    """A shard that did not end as it was told to, and why."""

    shard: int
    sentence: str

    def __str__(self) -> str:
        return f"shard {self.shard}: {self.sentence}"


class _EndedError(Exception):
    """A shard has ended, or a stop is wanted: what was going on ends."""


class _Process:
    """A shard: its process and its line."""

    def __init__(self, shard: int, process: subprocess.Popen[bytes], line: Line) -> None:
        self.shard = shard
        self.process = process
        self.line = line
        self.is_over = False  # whether its line has ended, and so the process
        self.sentence = ""  # why it fails, if it said so
        self.told: dict[type, Any] = {}  # its last message of each kind


class Crew:
    """All shards, for one life; made and run in one event loop."""

    def __init__(
        self,
        config: ServerConfig,
        places: Sequence[ShardPlace],
        prepared: Prepared,
        *,
        boot_identity: int,
        lock: int,
    ) -> None:
        """Make it; `lock` is the descriptor that holds the folder, for all of them."""
        self._config = config
        self._places = places
        self._prepared = prepared
        self._boot_identity = boot_identity
        self._lock = lock
        self._flag = make_stop_flag()
        self._processes: list[_Process] = []
        self._failures: dict[int, str] = {}
        self._news = asyncio.Event()
        self._is_stop_wanted = False
        self.listening: Listening | None = None  # once the node serves

    @property
    def pids(self) -> list[int]:
        """The processes of the shards, in order."""
        return [each.process.pid for each in self._processes]

    def want_stop(self) -> None:
        """Have all shards finish and end."""
        self._is_stop_wanted = True
        self._news.set()

    async def live(
        self, listen: Listen, on_listening: Callable[[Listening], None]
    ) -> list[Failure]:
        """Start all shards and run them until they have ended; return what failed, in shard order.

        Raises:
            FolderRefusedError: Their stores are not of one moment; no store was written.
        """
        try:
            self._spawn_all()
            await self._bring_up(listen)
            assert self.listening is not None
            on_listening(self.listening)
            await self._until(lambda: False)
        except _EndedError:
            pass
        finally:
            await self._end()
            self._flag.close()
        return [Failure(shard, self._failures[shard]) for shard in sorted(self._failures)]

    # The start.

    def _spawn_all(self) -> None:
        bus = self._config.bus
        made = make_bus(
            len(self._places),
            inbox_capacity=bus.inbox_capacity,
            reply_inbox_capacity=bus.reply_inbox_capacity,
        )
        try:
            for shard in range(len(self._places)):
                try:
                    self._spawn(shard, made)
                except OSError as error:
                    self._failures[shard] = f"cannot be started: {error.strerror or error}"
                    raise _EndedError from error
                made.release(shard)
        finally:
            made.close()

    def _spawn(self, shard: int, made: MadeBus) -> None:
        own, childs = make_line()
        with childs:
            cpus = self._places[shard].cpus
            try:
                process = subprocess.Popen(  # noqa: S603 - this very interpreter
                    [sys.executable, "-m", PROGRAM, str(childs.fileno()), *map(str, cpus)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(
                        *made.descriptors(shard),
                        *(childs.fileno(), self._flag.descriptor, self._lock),
                    ),
                )
            except BaseException:
                own.close()
                raise
        line = Line(own, FromShard)
        started = _Process(shard, process, line)
        self._processes.append(started)
        line.attach(lambda message: self._on_told(started, message))
        line.tell(
            Setup(
                config=self._config,
                placement=Placement(ShardId(shard), len(self._places)),
                prepared=self._prepared,
                ends=made.ends(shard),
                flag=self._flag.descriptor,
                cpus=cpus,
                boot_identity=self._boot_identity,
            )
        )

    async def _bring_up(self, listen: Listen) -> None:
        opened = await self._all_told(Opened)
        moments: dict[Path, Moment] = {}
        for each in opened:
            moments |= each.moments
        finish_opening(self._config.server.data_dir, self._prepared.layout, moments)
        self._tell_all(Go())
        await self._all_told(StoresOpen)
        self._tell_all(Begin())
        await self._all_told(Loaded)
        main = self._processes[METADATA_SHARD]
        main.line.tell(listen)
        await self._until(lambda: Listening in main.told)
        self.listening = main.told[Listening]

    def _tell_all(self, message: object) -> None:
        for each in self._processes:
            each.line.tell(message)

    async def _all_told(self, kind: type[Any]) -> list[Any]:
        """Wait until every shard has sent a message of this kind; return these, in shard order."""
        await self._until(lambda: all(kind in each.told for each in self._processes))
        return [each.told[kind] for each in self._processes]

    async def _until(self, is_done: Callable[[], bool]) -> None:
        """Wait for something that shards tell.

        Raises:
            _EndedError: One of them has ended, or a stop is wanted.
        """
        while not is_done():
            if self._is_stop_wanted or any(each.is_over for each in self._processes):
                raise _EndedError
            self._news.clear()
            await self._news.wait()

    def _on_told(self, told: _Process, message: object) -> None:
        if message is None:
            told.is_over = True
        elif isinstance(message, Failed):
            told.sentence = message.sentence
        else:
            told.told[type(message)] = message
        self._news.set()

    # The end.

    async def _end(self) -> None:
        """End all shards, in order if they can; every failure is noted."""
        self._note_ended(is_expected=False)
        server = self._config.server
        began = asyncio.get_running_loop().time()
        deadline = began + server.shutdown_join_timeout / SECOND
        if not self._failures and self.listening is not None:
            self._flag.raise_to(Wish.FINISH)
            await self._wait(
                lambda: all(Finished in each.told or each.is_over for each in self._processes),
                # The others need time to end after one that hangs was waited for (SH-37).
                until=min(began + server.shutdown_drain_timeout / SECOND, (began + deadline) / 2),
            )
            self._note_ended(is_expected=False)
        self._flag.raise_to(Wish.END)
        await self._wait(lambda: all(each.is_over for each in self._processes), until=deadline)
        for each in self._processes:
            if not each.is_over:
                self._failures[each.shard] = (
                    "was killed: it had not ended"
                    f" {server.shutdown_join_timeout // SECOND} s after the stop began"
                )
                each.process.kill()
        self._note_ended(is_expected=True)
        for each in self._processes:
            each.line.close()

    async def _wait(self, is_done: Callable[[], bool], *, until: float) -> None:
        loop = asyncio.get_running_loop()
        while not is_done() and (left := until - loop.time()) > 0:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                return

    def _note_ended(self, *, is_expected: bool) -> None:
        """Note why shards have ended by themselves; all of them, if they were told to end."""
        for each in self._processes:
            if not each.is_over and not is_expected:
                continue
            code = each.process.wait()
            if code == 0 and is_expected:
                continue
            sentence = each.sentence or _describe(code)
            self._failures.setdefault(each.shard, sentence)


def _describe(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
