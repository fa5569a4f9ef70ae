"""Judges the layout record of a data folder, which names what else must be in it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.runtime.files.whole import read_file
from headrace.server.doctor.report import FileReport, Verdict
from headrace.server.folders import (
    FIRST_GENERATION,
    LAYOUT_TEMPORARY,
    SHARDS_NAME,
    FolderRefusedError,
    generation_folder,
    is_new,
    store_folders,
)
from headrace.server.generations import find_leftovers, is_unused, used_sentence
from headrace.storage.config import LAYOUT_NAME, MARKER_NAME
from headrace.storage.layout import LayoutRecord, choose_layout, decode_layout
from headrace.storage.marker import VersionError, decode_marker
from headrace.wire.errors import CorruptError

_LEFT_OVER = "of a change of the number of shards; the next start removes it"


def examine_layout(folder: Path) -> tuple[LayoutRecord | None, FileReport | None]:
    """Return the layout and the verdict on its file; neither for a folder that no node has used.

    If the record is damaged, the marker of a store replaces it, so that the rest can be judged.

    Raises:
        StrangeFolderError: The folder belongs to something else.
    """
    try:
        if is_new(folder):
            return None, None
    except FolderRefusedError:
        text = "missing, and a node has used the folder; restore it from a copy of this folder"
        return _layout_of_marker(folder), _report(Verdict.DAMAGED, text, None)
    data = read_file(folder / LAYOUT_NAME)
    choice = choose_layout(data)
    record, error = _decode(choice.payload)
    if record is None:
        text = f"{error}; restore the file from a copy of this folder"
        return _layout_of_marker(folder), _report(Verdict.DAMAGED, text, len(data))
    text = f"shards: {record.shard_count}, generation {record.generation}"
    if not choice.damaged:
        return record, _report(Verdict.FINE, text, len(data))
    copies = ", ".join(map(str, choice.damaged))
    text = f"damaged of its four copies: {copies}; two are enough, and none is written anew"
    return record, _report(Verdict.NOTICE, text, len(data))


def _decode(payload: bytes) -> tuple[LayoutRecord | None, str]:
    if not payload:
        return None, "fewer than two of its four copies agree"
    try:
        return decode_layout(payload), ""
    except CorruptError as error:
        return None, str(error)


def _layout_of_marker(folder: Path) -> LayoutRecord | None:
    generation = _likely_generation(folder)
    shards = sorted(_numbers(generation_folder(folder, generation)))
    count = sum(1 for at, shard in enumerate(shards) if at == shard)
    layout = LayoutRecord(
        cluster=0,
        replica=0,
        replica_count=1,
        shard_count=max(count, 1),
        generation=generation,
    )
    for store in store_folders(folder, layout):
        try:
            identity = decode_marker(read_file(store / MARKER_NAME))
        except (OSError, CorruptError, VersionError):
            continue  # It gets a verdict of its own.
        return msgspec.structs.replace(
            layout,
            cluster=identity.cluster,
            replica=identity.replica,
            replica_count=identity.replica_count,
        )
    return None


def _likely_generation(folder: Path) -> int:
    """Return the newest generation that a node has used, or the oldest if none was."""
    found = _numbers(folder / SHARDS_NAME)
    used = [each for each in found if not is_unused(generation_folder(folder, each))]
    return max(used, default=min(found, default=FIRST_GENERATION))


def _numbers(folder: Path) -> list[int]:
    """Return the folders in a folder that are named by a number."""
    return [int(each.name) for each in folder.glob("*") if each.name.isdecimal() and each.is_dir()]


def examine_leftovers(folder: Path, layout: LayoutRecord) -> Iterator[FileReport]:
    """Judge what an interrupted change of the shard count left."""
    for leftover in find_leftovers(folder, layout):
        verdict, text = Verdict.REPAIRED, _LEFT_OVER
        if leftover.is_used:
            verdict, text = Verdict.DAMAGED, used_sentence(leftover.path, layout)
        for path in sorted(leftover.path.rglob("*")):
            if path.is_symlink() or path.is_file():
                yield _left_over(folder, path, verdict, text)
    temporary = folder / LAYOUT_TEMPORARY
    if temporary.is_file():
        yield _left_over(folder, temporary, Verdict.REPAIRED, _LEFT_OVER)


def _left_over(folder: Path, path: Path, verdict: Verdict, text: str) -> FileReport:
    return FileReport(
        path=path.relative_to(folder).as_posix(),
        what="left-over",
        verdict=verdict,
        text=text,
        size_bytes=path.lstat().st_size,
    )


def _report(verdict: Verdict, text: str, size: int | None) -> FileReport:
    return FileReport(path=LAYOUT_NAME, what="layout", verdict=verdict, text=text, size_bytes=size)
