"""Checks the data folder of a node that does not run, and changes nothing in it.

```
lock -> layout -> metadata store -> stores of shards -> segments and indexes -> everything else
```

Every file gets a verdict (`report`). The stores are judged by recovery itself (`stores`), the
segment files by the code that opens them at a start (`next_start`); segments are read batch by
batch (`segments`).

Flow: recover.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headrace.base.limits import GIB, SEGMENT_BYTES_MAX
from headrace.runtime.files.quarantine import QUARANTINE_NAME, REASON_NAME
from headrace.runtime.files.whole import read_file
from headrace.runtime.host import boot_identity
from headrace.server.clock_mark import CLOCK_NAME
from headrace.server.doctor.layout import examine_layout, examine_leftovers
from headrace.server.doctor.partitions import (
    Strays,
    examine_partition,
    judge_partitions,
    read_metadata,
)
from headrace.server.doctor.report import FileReport, Report, Verdict, worst
from headrace.server.doctor.stores import StoreExam, examine_store
from headrace.server.folders import LOCK_NAME, PARTITIONS_NAME, StrangeFolderError, store_folders
from headrace.server.holders import find_lock_holder
from headrace.server.lines import folder_not_at_rest, folder_of_others
from headrace.storage.config import StoreConfig
from headrace.storage.layout import LayoutRecord
from headrace.storage.moments import find_older

# Less than this does not even hold one segment of the largest size.
FREE_BYTES_LOW = SEGMENT_BYTES_MAX
_OTHERS = 0o077  # the permissions of everybody but the owner

Tell = Callable[[str], None]


class DoctorError(Exception):
    """The folder cannot be examined; the sentence says why."""


def examine(folder: Path, tell: Tell = lambda _: None) -> Report:
    """Check a data folder; `tell` receives what is being read.

    Raises:
        DoctorError: It is no folder of a node, or a node has it open.
        OSError: It cannot be read.
    """
    if not folder.is_dir():
        raise DoctorError(f"{folder} is not a folder: name the data folder of a node")
    with _hold(folder):
        try:
            files = _examine_files(folder, tell)
        except StrangeFolderError:
            raise DoctorError(folder_of_others(folder)) from None
        free = shutil.disk_usage(folder).free
        judged = [_with_rights(folder, files[path]) for path in sorted(files)]
        return Report(
            folder=str(folder), free_bytes=free, files=(_folder_report(folder, free), *judged)
        )


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """Lock the folder without changing it; a folder without a lock file was never in use."""
    try:
        fd = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield
        return
    try:
        _lock(fd, folder)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = find_lock_holder(folder / LOCK_NAME)
        raise DoctorError(folder_not_at_rest(folder, holder)) from None


def _examine_files(folder: Path, tell: Tell) -> dict[str, FileReport]:
    """Return a report for every existing and every missing file, by path."""
    layout, layout_report = examine_layout(folder)
    reports = {} if layout_report is None else {layout_report.path: layout_report}
    strays = None
    if layout is not None:
        exams = _examine_stores(folder, layout, tell)
        metadata, *shards = exams.values()
        names = read_metadata(metadata.groups)
        found = [each for exam in exams.values() for each in exam.files]
        found += _examine_moments(exams)
        judged, broken = judge_partitions(folder / PARTITIONS_NAME, shards, names)
        found += broken
        for shard in shards:
            for group in shard.groups or ():
                tell(names.of(group.state.group))
                found += examine_partition(
                    folder / PARTITIONS_NAME,
                    group,
                    names,
                    judged,
                    is_journal_broken=shard.is_journal_broken,
                )
        found += examine_leftovers(folder, layout)
        reports |= {each.path: each for each in found}
        strays = Strays(shards, names, judged)
    for path in _walk(folder):
        if path not in reports:
            reports[path] = _examine_other(folder, path, strays)
    return reports


def _examine_stores(folder: Path, layout: LayoutRecord, tell: Tell) -> dict[str, StoreExam]:
    """Judge the store of the metadata, then those of the shards, by their paths."""
    exams = {}
    for journal, path in enumerate(store_folders(folder, layout)):
        name = path.relative_to(folder).as_posix()
        tell(name)
        if path.is_dir():
            exams[name] = examine_store(path, name, _store_config(layout, journal))
            continue
        text = "the folder is missing; restore it from a copy of this folder"
        missing = FileReport(path=name, what="store", verdict=Verdict.DAMAGED, text=text)
        exams[name] = StoreExam([missing], None)
    return exams


def _examine_moments(exams: Mapping[str, StoreExam]) -> list[FileReport]:
    """Judge whether the stores are of one moment; the verdict is for the files of the older one."""
    moments = {name: exam.moment for name, exam in exams.items() if exam.moment is not None}
    older = find_older(moments) if moments else None
    if older is None:
        return []
    return [FileReport(path=older[0], what="store", verdict=Verdict.DAMAGED, text=older[1])]


def _store_config(layout: LayoutRecord, journal: int) -> StoreConfig:
    """Return the configuration by which recovery judges a store; sizes are in its superblock."""
    return StoreConfig(
        cluster=layout.cluster,
        replica=layout.replica,
        replica_count=layout.replica_count,
        journal_bytes_max=0,
        journal_files=0,
        record_bytes_max=0,
        boot_identity=boot_identity(),
        journal=journal,
    )


def _walk(root: Path) -> Iterator[str]:
    """Yield every file below a folder, by its relative path; no symbolic link is followed."""
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            yield Path(folder, name).relative_to(root).as_posix()


def _examine_other(folder: Path, path: str, strays: Strays | None) -> FileReport:
    """Judge a file that nothing named so far; no `strays`: no node has used the folder."""
    what, verdict, text = "", Verdict.UNKNOWN, "no file of a node; it is left alone"
    if path == LOCK_NAME:
        what, verdict, text = "lock", Verdict.FINE, "held while a node runs"
    elif path in (CLOCK_NAME, f"{CLOCK_NAME}.tmp"):
        what, verdict = "clock", Verdict.FINE
        text = "what time it is, for a start on a machine that stayed up"
    elif path.startswith(f"{QUARANTINE_NAME}/"):
        what, verdict, text = "evidence", Verdict.NOTICE, _describe_evidence(folder / path)
    elif strays is None:
        what, verdict = "left-over", Verdict.REPAIRED
        text = "of a format that was broken off; the next start makes it again"
    elif path.startswith(f"{PARTITIONS_NAME}/"):
        below = path.removeprefix(f"{PARTITIONS_NAME}/")
        stray = strays.examine(folder / PARTITIONS_NAME, below)
        if stray is not None:
            return stray
    size = (folder / path).lstat().st_size
    return FileReport(path=path, what=what, verdict=verdict, text=text, size_bytes=size)


def _describe_evidence(path: Path) -> str:
    """Describe what an earlier start put into quarantine, and why."""
    if path.name != REASON_NAME:
        return "kept as evidence by an earlier start; nothing reads it"
    reason = read_file(path).decode(errors="replace")
    return f"an earlier start put away {'; '.join(reason.splitlines())}"


def _folder_report(folder: Path, free: int) -> FileReport:
    """Judge what concerns all files: free space and permissions."""
    verdict, text = Verdict.FINE, f"{free / GIB:.1f} GiB free"
    if free < FREE_BYTES_LOW:
        verdict = Verdict.NOTICE
        text += ": make room, or sends will wait for it"
    mode = folder.stat().st_mode & 0o777
    if mode & _OTHERS:
        verdict = worst(verdict, Verdict.REPAIRED)
        text += f"; others may enter (mode {mode:o}), the next start makes it 700"
    return FileReport(path=".", what="folder", verdict=verdict, text=text)


def _with_rights(folder: Path, report: FileReport) -> FileReport:
    """Add an error about a file's permissions, if there is one."""
    if report.size_bytes is None or report.verdict == Verdict.UNKNOWN:
        return report
    status = (folder / report.path).lstat()
    mode = status.st_mode & 0o777
    said = []
    if mode & _OTHERS:
        said.append(f"others may use it (mode {mode:o}): chmod 600")
    if status.st_uid != folder.stat().st_uid:
        said.append(f"it belongs to user {status.st_uid}, and the folder does not")
    if not said:
        return report
    return msgspec.structs.replace(
        report,
        verdict=worst(report.verdict, Verdict.NOTICE),
        text="; ".join([report.text, *said]),
    )
