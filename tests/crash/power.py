"""Lane P: real power cuts, on a file system of its own (fault-model section 4).

An ext4 image on a loop device is shut down under the running node without a flush of its log: what
was synced is there after the next mount, and nothing else is.
"""

import fcntl
import os
import random
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.wire.identifiers import First
from tests import crossings
from tests.crash.client import Client
from tests.crash.load import Crowd, Tally, make_topics
from tests.crash.process import CrashNode
from tests.watched_nodes import hand_in

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_LOG_FLUSH = 2
_IMAGE_BYTES = 1 << 30  # sparse; a campaign on a fast machine filled a quarter of it
_LOAD_SECONDS = (0.05, 0.6)
_CUT_DURING_START_SHARE = 0.2


class PowerDisk:
    """A file system that can lose its power."""

    def __init__(self, folder: Path, image_bytes: int = _IMAGE_BYTES) -> None:
        """Make and mount it."""
        self._image = folder / "image"
        self.mount_point = folder / "disk"
        self.mount_point.mkdir()
        with self._image.open("wb") as file:
            file.truncate(image_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.mount_point))

    def unmount(self) -> None:
        _run("umount", str(self.mount_point))

    def cut(self) -> None:
        """Lose the power: nothing that is not synced survives, and every write fails from now."""
        fd = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(fd)

    def free_bytes(self) -> int:
        found = os.statvfs(self.mount_point)
        return found.f_bavail * found.f_frsize


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def power_disk(image_bytes: int = _IMAGE_BYTES) -> Iterator[PowerDisk]:
    """Give a mounted file system; it is gone at the end."""
    with TemporaryDirectory(prefix="headrace-power-") as folder:
        disk = PowerDisk(Path(folder), image_bytes)
        try:
            yield disk
        finally:
            disk.unmount()


def why_not() -> str | None:
    """Say why this machine cannot do it, if so."""
    try:
        with power_disk(16 << 20) as disk:
            disk.cut()
            try:
                (disk.mount_point / "probe").write_bytes(b"x")
            except OSError:
                return None
            return "the file system was not shut down"
    except (OSError, subprocess.CalledProcessError) as error:
        return str(getattr(error, "stderr", "") or error).strip()


@dataclass
class CutTally(Tally):
    """What a campaign of power cuts has done."""

    cuts: int = 0
    lost_ranges: int = 0
    lost_messages: int = 0


@dataclass
class _Cuts:
    """One run on one file system."""

    node: CrashNode
    disk: PowerDisk
    rng: random.Random
    boot: int = 1
    tally: CutTally = field(default_factory=CutTally)

    def cut(self) -> None:
        """Lose the power, and bring the machine up again."""
        self.disk.cut()
        self.node.kill()
        self.disk.unmount()
        self.disk.mount()
        self.boot += 1
        self.tally.cuts += 1
        self.node.set_boot_identity(self.boot)

    def cut_under_load(self, crowd: Crowd) -> None:
        time.sleep(self.rng.uniform(*_LOAD_SECONDS))
        self.node.check_alive()
        crossings.note(self.node)
        crowd.is_ending = True
        self.cut()

    def start(self) -> None:
        """Start the node again; sometimes the power goes once more meanwhile (PR5)."""
        while self.rng.random() < _CUT_DURING_START_SHARE:
            self.node.begin()
            time.sleep(self.rng.uniform(0.05, 0.5))
            self.cut()
        self.node.restart()


def run_cuts(cuts: int, seed: int) -> CutTally:
    """Cut the power that often; give what was done.

    Raises:
        AssertionError: Class `persisted` lost something, or class `replicated` gave an offset out
            again, or lost a range that it did not report.
    """
    rng = random.Random(seed)
    with power_disk() as disk, TemporaryDirectory(prefix="headrace-cuts-") as folder:
        node = CrashNode(Path(folder), data=disk.mount_point / "data", boot_identity=1)
        try:
            return _run_cuts(_Cuts(node, disk, rng), cuts)
        finally:
            if node.is_started:
                node.kill()
            hand_in(node.output(), disk.mount_point)


def accept_losses(crowd: Crowd, node: CrashNode, tally: CutTally) -> None:
    """See what class `replicated` has lost: a range up to where it goes on, and nothing else.

    The end of the log that a poll tells is behind the last message by exactly that range (O3.5).
    """
    crowd.reader.connect(node.tcp)
    for place in crowd.places:
        checker = crowd.checkers[place]
        seen = crowd.reader.read_all(place)
        end = seen[-1].offset + 1 if seen else 0
        current = crowd.reader.poll(place, First(), count=1).current_offset
        resumes_at = current + 1 if seen or current else 0
        if place[1] == "persisted":
            assert resumes_at == end, f"{place} lost {end} to {resumes_at}"
            continue
        sends = [send for each in crowd.producers if each.place == place for send in each.history]
        given = max((send.end_offset for send in sends if send.outcome == "ok"), default=0)
        assert given <= max(resumes_at, end), f"{given} was given out, it resumes at {resumes_at}"
        if resumes_at > end and not checker.is_lost(resumes_at - 1):
            tally.lost_ranges += 1
            tally.lost_messages += max(given - end, 0)
            checker.lose(end, resumes_at)
        for consumer in crowd.consumers:
            if consumer.place == place:
                consumer.checker.rewind(crowd.reader.stored_offset(place))
    crowd.reader.close()


def _run_cuts(run: _Cuts, cuts: int) -> CutTally:
    node = run.node
    node.start()
    admin = Client(1)
    admin.connect(node.tcp)
    crowd = Crowd(make_topics(admin), run.rng)
    admin.close()
    for number in range(cuts):
        crowd.run(node.tcp, partial(run.cut_under_load, crowd))
        run.start()
        accept_losses(crowd, node, run.tally)
        crowd.verify(node.tcp)
        if number % 2:
            crowd.settle(node.tcp)
            crowd.verify(node.tcp)
    crowd.settle(node.tcp)
    node.stop()
    node.restart()
    crowd.verify(node.tcp)
    node.stop()
    crowd.count()
    run.tally.add(crowd.tally)
    return run.tally
