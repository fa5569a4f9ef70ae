"""Judges the layout record of a data folder, which names what else must be in it."""

from pathlib import Path

from headrace.runtime.files.whole import read_file
from headrace.server.doctor.report import FileReport, Verdict
from headrace.server.folders import FolderRefusedError, is_new, store_folders
from headrace.storage.config import LAYOUT_NAME, MARKER_NAME
from headrace.storage.layout import LayoutRecord, choose_layout, decode_layout
from headrace.storage.marker import VersionError, decode_marker
from headrace.wire.errors import CorruptError


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
    for store in store_folders(folder):
        try:
            identity = decode_marker(read_file(store / MARKER_NAME))
        except (OSError, CorruptError, VersionError):
            continue  # It gets a verdict of its own.
        return LayoutRecord(
            cluster=identity.cluster,
            replica=identity.replica,
            replica_count=identity.replica_count,
            shard_count=1,
            generation=1,
        )
    return None


def _report(verdict: Verdict, text: str, size: int | None) -> FileReport:
    return FileReport(path=LAYOUT_NAME, what="layout", verdict=verdict, text=text, size_bytes=size)
