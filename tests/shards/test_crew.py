"""How the shards of a node start and end together: on the crew itself, with real processes.

A crew runs in the loop of the test: what happens to it happens at a known step, and every shard
can be asked how it has ended: with 0, if it ended by itself because the flag said so.
"""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.bus.ends import MadeBus
from headrace.server.allocation import ShardPlace
from headrace.server.config.load import load_config
from headrace.server.config.sections import ServerConfig
from headrace.server.crew import Crew
from headrace.server.folders import hold_folder
from headrace.server.messages import Begin, Listen, Opened
from headrace.server.opening import prepare_folder
from headrace.server.supervisor import ShardsFailedError, Supervisor
from tests.crash.process import SMALL

pytestmark = pytest.mark.slow

SHARDS = 3
BOOT = 1
LIFE_SECONDS_MAX = 60.0  # a life that takes longer strands somebody
JOIN_SECONDS = 3


class StagedCrew(Crew):
    """A crew to which something happens before all shards are told something, or once it serves."""

    happens: "Step"
    before: type | None  # none: once it serves; `Opened`: once all are started
    failures: list[str]

    async def _bring_up(self, listen: Listen) -> None:
        if self.before is Opened:
            self.happens(self)
        await super()._bring_up(listen)

    def _tell_all(self, message: object) -> None:
        if type(message) is self.before:
            self.happens(self)
        super()._tell_all(message)

    def _on_listening(self, _: object) -> None:
        if self.before is None:
            self.happens(self)

    async def run(self) -> None:
        config = self._config
        life = self.live(Listen(config.tcp.address, config.http.address), self._on_listening)
        self.failures = [str(each) for each in await asyncio.wait_for(life, LIFE_SECONDS_MAX)]

    @property
    def codes(self) -> list[int | None]:
        """How each shard that was started has ended."""
        return [each.process.returncode for each in self._processes]

    def send_signal(self, number: signal.Signals, *shards: int) -> None:
        for shard in shards:
            self._processes[shard].process.send_signal(number)


Step = Callable[[StagedCrew], None]


def make_config(folder: Path) -> ServerConfig:
    flags = {
        "server.data_dir": str(folder / "data"),
        "tcp.address": "127.0.0.1:0",
        "http.address": "127.0.0.1:0",
    }
    environment = SMALL | {
        "HEADRACE_SERVER_SHUTDOWN_JOIN_TIMEOUT": f"{JOIN_SECONDS} s",
        "HEADRACE_SERVER_SHUTDOWN_DRAIN_TIMEOUT": "1 s",
    }
    return load_config(None, environment, flags, "dev")


@contextmanager
def made_crew(
    folder: Path, kind: type[StagedCrew] = StagedCrew
) -> Iterator[Callable[[], StagedCrew]]:
    """Return a function that makes a crew on a folder, in the loop that it will run in."""
    config = make_config(folder)

    def make() -> StagedCrew:
        prepared = prepare_folder(config, shard_count=SHARDS, boot_identity=BOOT)
        places = [ShardPlace()] * SHARDS
        return kind(config, places, prepared, boot_identity=BOOT, lock=lock)

    with hold_folder(config.server.data_dir) as lock:
        yield make


def live(make: Callable[[], StagedCrew], happens: Step, before: type | None = None) -> StagedCrew:
    """Run one life to its end; give the crew as it is then."""

    async def run() -> StagedCrew:
        crew = make()
        crew.happens, crew.before = happens, before
        await crew.run()
        return crew

    return asyncio.run(run())


def test_one_flag_ends_all_shards_and_each_ends_by_itself(tmp_path: Path) -> None:
    """SH-34, twice on one folder. Share: shards, about 5 s."""
    with made_crew(tmp_path) as make:
        for _ in range(2):
            crew = live(make, Crew.want_stop)
            assert crew.failures == []
            assert crew.codes == [0] * SHARDS


@pytest.mark.parametrize("killed", range(SHARDS))
def test_a_shard_that_ends_ends_its_siblings(tmp_path: Path, killed: int) -> None:
    """SH-35."""
    with made_crew(tmp_path) as make:
        crew = live(make, lambda crew: crew.send_signal(signal.SIGKILL, killed))
    assert crew.failures == [f"shard {killed}: ended by SIGKILL"]
    assert crew.codes == [-9 if each == killed else 0 for each in range(SHARDS)]


def test_a_shard_whose_lanes_broke_ends(tmp_path: Path) -> None:
    """PR7: its sibling lives, so nobody else would end a node of which half does not serve."""

    class TornCrew(StagedCrew):
        def _spawn(self, shard: int, made: MadeBus) -> None:
            lane = made.ends(1).lanes[0]
            assert lane is not None
            if shard == 0:
                self.kept = os.dup(lane.main)
            super()._spawn(shard, made)

    def tear(crew: StagedCrew) -> None:
        assert isinstance(crew, TornCrew)
        os.write(crew.kept, b"\xff" * 64)  # as if shard 1 had written that to shard 0
        os.close(crew.kept)

    with made_crew(tmp_path, TornCrew) as make:
        crew = live(make, tear)
    assert crew.failures[0].startswith("shard 0: its lanes are closed to shard 1: frame of ")
    assert crew.codes[0] == 1
    assert crew.codes[2] == 0, "its lanes are whole, so it ends as it is told"


@pytest.mark.parametrize("before", [Opened, Begin])
def test_a_shard_0_that_dies_before_it_hands_over_metadata_strands_nobody(
    tmp_path: Path, before: type
) -> None:
    """SH-32: the others wait for it, look at the flag, and end by themselves."""
    with made_crew(tmp_path) as make:
        crew = live(make, lambda crew: crew.send_signal(signal.SIGKILL, 0), before)
    assert crew.failures == ["shard 0: ended by SIGKILL"]
    assert crew.codes == [-9] + [0] * (SHARDS - 1)


@pytest.mark.parametrize("broken", range(SHARDS))
def test_those_that_were_started_are_ended_if_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """SH-36: the cause is reported with its number."""
    start = subprocess.Popen
    started: list[int] = []

    def popen(*arguments: Any, **options: Any) -> Any:
        if len(started) == broken:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(len(started))
        return start(*arguments, **options)

    with made_crew(tmp_path) as make:
        monkeypatch.setattr("headrace.server.crew.subprocess.Popen", popen)
        crew = live(make, Crew.want_stop)
    wanted = f"shard {broken}: cannot be started: Resource temporarily unavailable"
    assert crew.failures == [wanted]
    assert crew.codes == [0] * broken


def test_whoever_is_alive_at_the_deadline_is_killed_and_reported(tmp_path: Path) -> None:
    """SH-37: the others end by themselves. Share: shards, about 5 s."""

    def stop(crew: StagedCrew) -> None:
        crew.send_signal(signal.SIGSTOP, 1)
        crew.want_stop()

    with made_crew(tmp_path) as make:
        crew = live(make, stop)
    late = f"was killed: it had not ended {JOIN_SECONDS} s after the stop began"
    assert crew.failures == [f"shard 1: {late}"]
    assert crew.codes == [0, -9, 0]


def test_all_failures_are_reported_together_in_shard_order(tmp_path: Path) -> None:
    """SH-37. Share: shards, about 5 s."""

    def kill(crew: StagedCrew) -> None:
        crew.send_signal(signal.SIGSTOP, 1)
        crew.send_signal(signal.SIGKILL, 2)
        crew.send_signal(signal.SIGABRT, 0)

    with made_crew(tmp_path) as make:
        crew = live(make, kill)
    assert [each.partition(":")[0] for each in crew.failures] == ["shard 0", "shard 1", "shard 2"]
    assert "SIGABRT" in crew.failures[0]
    assert "was killed" in crew.failures[1]
    assert "SIGKILL" in crew.failures[2]


def make_supervisor(folder: Path, lock: int) -> Supervisor:
    places = [ShardPlace()] * 2
    return Supervisor(
        make_config(folder), places, boot_identity=BOOT, lock=lock, is_throwaway=False
    )


def test_without_handlers_for_signals_no_shard_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SH-38: a loop outside the main thread cannot have them."""
    started: list[object] = []
    raised: list[BaseException] = []
    monkeypatch.setattr("headrace.server.crew.subprocess.Popen", started.append)

    def run() -> None:
        with hold_folder(tmp_path / "data") as lock:

            async def supervise() -> None:
                await make_supervisor(tmp_path, lock).run()

            try:
                asyncio.run(supervise())
            except ShardsFailedError as error:
                raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LIFE_SECONDS_MAX)
    assert len(raised) == 1
    assert started == []
    assert not (tmp_path / "data" / "layout").exists()


def test_the_first_signal_is_obeyed_and_later_ones_are_ignored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SH-38: it ends as the first one says, though others come before it has."""
    wanted: list[Crew] = []
    want_stop = Crew.want_stop

    def note_stop(crew: Crew) -> None:
        wanted.append(crew)
        want_stop(crew)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Crew, "want_stop", note_stop)
    listening = Supervisor._on_listening

    def on_listening(supervisor: Supervisor, told: Any) -> None:
        listening(supervisor, told)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Supervisor, "_on_listening", on_listening)
    with hold_folder(tmp_path / "data") as lock:

        async def supervise() -> None:
            await asyncio.wait_for(make_supervisor(tmp_path, lock).run(), LIFE_SECONDS_MAX)

        asyncio.run(supervise())
    assert len(wanted) == 1
    assert capfd.readouterr().err.count("finishing what is in flight") == 1
