"""The diagnostic archive: the state of a node, packed on a thread of its own."""

import io
import os
import platform
import zipfile
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.ports.host import MakeSnapshot, SnapshotMade
from headrace.wire.numbers import SnapshotCompression, SnapshotType

_METHODS = {
    SnapshotCompression.STORED: zipfile.ZIP_STORED,
    SnapshotCompression.DEFLATED: zipfile.ZIP_DEFLATED,
    SnapshotCompression.BZIP2: zipfile.ZIP_BZIP2,
    SnapshotCompression.LZMA: zipfile.ZIP_LZMA,
    # The library supports neither in a ZIP file; this is the nearest that it supports.
    SnapshotCompression.ZSTD: zipfile.ZIP_DEFLATED,
    SnapshotCompression.XZ: zipfile.ZIP_LZMA,
}


class SnapshotMaker:
    """Packs archives one after another; each entry is a function that returns its text."""

    def __init__(
        self, sources: dict[SnapshotType, Callable[[], str]], wake: Callable[[], None]
    ) -> None:
        self._sources = {**sources, SnapshotType.TEST: _test}
        self._wake = wake
        self._lock = Lock()
        self._events: list[SnapshotMade] = []
        self._orders: SimpleQueue[MakeSnapshot | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()

    def submit(self, effect: MakeSnapshot) -> None:
        """Start packing an archive."""
        self._orders.put(effect)

    def take_events(self) -> list[SnapshotMade]:
        """Return the archives that are ready."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """End the thread."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (effect := self._orders.get()) is not None:
            data = self._pack(effect)
            fits = len(data) + HEADER_BYTES <= FRAME_BYTES_MAX
            with self._lock:
                self._events.append(SnapshotMade(effect.token, data if fits else None))
            self._wake()

    def _pack(self, effect: MakeSnapshot) -> bytes:
        wanted = effect.types
        if SnapshotType.ALL in wanted:
            wanted = tuple(self._sources)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", _METHODS[effect.compression]) as archive:
            for kind in wanted:
                source = self._sources.get(kind)
                text = "not kept by this node\n" if source is None else _read(source)
                archive.writestr(f"{kind.name.lower()}.txt", text)
            for name, text in effect.texts:
                archive.writestr(name, text)
        return out.getvalue()


def _test() -> str:
    """Return the entry that test suites of other clients look for."""
    return "test"


def _read(source: Callable[[], str]) -> str:
    try:
        return source()
    except OSError as error:
        return f"cannot be read: {error}\n"


def describe_folder(folder: Path) -> str:
    """List the files of a data folder with their sizes."""
    lines = []
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent) / name
            lines.append(f"{path.lstat().st_size:>14} {path.relative_to(folder)}")
    return "\n".join(lines) + "\n"


def describe_processes() -> str:
    """List the processes that this user may see: number and command."""
    lines = []
    for entry in sorted(Path("/proc").iterdir(), key=lambda each: each.name):
        if entry.name.isdecimal():
            try:
                lines.append(f"{entry.name:>8} {(entry / 'comm').read_text().strip()}")
            except OSError:
                continue  # It ended meanwhile.
    return "\n".join(lines) + "\n"


def describe_usage() -> str:
    """Describe the resources that this process uses."""
    return (Path("/proc") / "self" / "status").read_text() + f"\n{platform.platform()}\n"
