"""Judges the files of one store as recovery would, and changes none of them.

The decision of a start is that of recovery itself (`storage.opening`). Recovery stops at the first
fatal finding; the journal is then judged once more for all its damage.

Flow: recover.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.ports.recovered import Finding, RecoveredGroup
from headrace.runtime.files.disk import LOCK_NAME, QUARANTINE_PREFIX, TEMPORARY_SUFFIX
from headrace.runtime.files.whole import read_file
from headrace.server.doctor.report import FileReport, Verdict, worst
from headrace.storage.checkpoint import decode_checkpoint
from headrace.storage.config import (
    MARKER_NAME,
    SUPERBLOCK_NAME,
    StoreConfig,
    checkpoint_name,
    journal_key,
    journal_name,
)
from headrace.storage.judge import Judge
from headrace.storage.judge import Verdict as JournalVerdict
from headrace.storage.marker import VersionError
from headrace.storage.moments import Moment
from headrace.storage.opening import LostError, Opener, RefusalError
from headrace.storage.recovery import Replay
from headrace.storage.scan import scan_journal
from headrace.storage.superblock import Superblock, choose_superblock, decode_superblock
from headrace.wire.errors import CorruptError

_JOURNAL = re.compile(r"journal\.(\d+)")
_CHECKPOINT = re.compile(r"checkpoint\.\d+")
_QUARANTINE = re.compile(re.escape(QUARANTINE_PREFIX) + r"\d+")
# The verdict for each kind of finding of recovery.
_VERDICTS = {
    "refused": Verdict.DAMAGED,
    "lost": Verdict.DAMAGED,
    "rot": Verdict.DAMAGED,
    "torn": Verdict.REPAIRED,
    "superblock": Verdict.REPAIRED,
    "power loss": Verdict.REPAIRED,
}
_HOW = {
    "torn": "the bytes are kept in a file quarantine.<n>; none of them was confirmed as durable",
    "superblock": "the next write makes it anew from the others",
    "power loss": "what was written and not synced may be gone",
}


# Files that are known by their name alone.
_PLAIN = {
    LOCK_NAME: ("lock", Verdict.FINE, "held while a node runs"),
    MARKER_NAME: ("marker", Verdict.FINE, "says whose store this is"),
}
_EVIDENCE = "bytes that an earlier start cut and kept as evidence; nothing reads it"
_LEFT_OVER = "left of a write that was broken off; nothing reads it"


class StoreExam(msgspec.Struct, frozen=True):
    """The findings; `groups` are those that are left, none if that is unknown.

    `is_journal_broken`: records that were synced are gone, and ops of groups with them.
    """

    files: list[FileReport]
    groups: tuple[RecoveredGroup, ...] | None
    is_journal_broken: bool = False
    moment: Moment | None = None  # of a store that a start would open
    ceilings: dict[int, int] = {}  # by group: offsets below may have been assigned (FM-7)
    is_power_loss: bool = False  # groups that the store does not know may have been lost, too


def examine_store(folder: Path, name: str, config: StoreConfig) -> StoreExam:
    """Judge the files of one store; `name` is its path below the data folder."""
    files = _read_files(folder)
    opener = Opener(config, files)
    verdict: JournalVerdict | None = None
    groups = None
    is_journal_broken = False
    moment = None
    ceilings: dict[int, int] = {}
    is_power_loss = False
    findings = opener.findings
    try:
        loaded = opener.load()
        groups, verdict = loaded.recovered.groups, loaded.verdict
        moment, ceilings = loaded.moment, loaded.recovered.ceilings
        is_power_loss = loaded.power_lost_at != 0
    except (RefusalError, LostError):
        if _JOURNAL.fullmatch(findings[-1].file):
            groups, verdict = _judge_whole_journal(config, files, findings)
            is_journal_broken = True
    superblock = _superblock_of(files)
    reports = [
        _report(folder / each, f"{name}/{each}", findings, superblock, verdict)
        for each in sorted({*_names(folder), *(finding.file for finding in findings)})
    ]
    return StoreExam(reports, groups, is_journal_broken, moment, ceilings, is_power_loss)


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def _read_files(folder: Path) -> dict[str, bytes]:
    files = {}
    for entry in sorted(folder.iterdir()):
        is_ours = entry.name != LOCK_NAME and not entry.name.startswith(QUARANTINE_PREFIX)
        if is_ours and entry.is_file() and not entry.is_symlink():
            files[entry.name] = read_file(entry)
    return files


def _superblock_of(files: Mapping[str, bytes]) -> Superblock | None:
    payload = choose_superblock(files.get(SUPERBLOCK_NAME, b"")).payload
    try:
        return decode_superblock(payload)
    except CorruptError:
        return None  # Recovery has reported it already.


def _judge_whole_journal(
    config: StoreConfig, files: Mapping[str, bytes], findings: list[Finding]
) -> tuple[tuple[RecoveredGroup, ...], JournalVerdict]:
    """Add all damage to the journal where recovery named the first only; return what is left."""
    superblock = _superblock_of(files)
    assert superblock is not None, "the journal is judged only behind a good superblock"
    number = superblock.checkpoint_number
    checkpoint = decode_checkpoint(files[checkpoint_name(number)]) if number else None
    scan = scan_journal(
        files, files_count=superblock.journal_files, key=journal_key(superblock.identity)
    )
    verdict = Judge(superblock, files, replica_count=config.replica_count).judge(scan.heads)
    told = {(finding.file, finding.position) for finding in findings}
    found = [
        Finding(
            "rot", hole.file, hole.position, f"records {hole.first} to {hole.last} cannot be read"
        )
        for hole in verdict.holes
    ]
    found += [
        Finding("rot", short.file, short.length, f"{short.length} bytes of {short.length_wanted}")
        for short in verdict.shortened
    ]
    recovered = Replay(checkpoint, verdict).run(suspect_at=0, power_lost_at=0)
    found += recovered.damaged
    findings += [each for each in found if (each.file, each.position) not in told]
    return recovered.groups, verdict


def _report(
    file: Path,
    path: str,
    findings: list[Finding],
    superblock: Superblock | None,
    verdict: JournalVerdict | None,
) -> FileReport:
    """Return the report on one file."""
    what, judged, text = _describe(file, superblock, verdict)
    position = None
    for finding in findings:
        if finding.file == file.name:
            judged = worst(judged, _VERDICTS[finding.kind])
            how = f"; {_HOW[finding.kind]}" if finding.kind in _HOW else ""
            said = f"{finding.text}{how}"
            text = said if position is None else f"{text}; {said}"
            position = finding.position if position is None else position
    size = file.lstat().st_size if file.is_symlink() or file.exists() else None
    return FileReport(
        path=path, what=what, verdict=judged, text=text, size_bytes=size, position=position
    )


def _describe(
    file: Path, superblock: Superblock | None, verdict: JournalVerdict | None
) -> tuple[str, Verdict, str]:
    """Describe a file by its name, and its content if it is sound."""
    name = file.name
    found = _PLAIN.get(name, ("", Verdict.UNKNOWN, "no file of a node; it is left alone"))
    number = _JOURNAL.fullmatch(name)
    if file.is_symlink() or file.is_dir():
        pass
    elif name == SUPERBLOCK_NAME:
        found = ("superblock", Verdict.FINE, _describe_superblock(superblock))
    elif _QUARANTINE.fullmatch(name):
        found = ("evidence", Verdict.NOTICE, _EVIDENCE)
    elif _CHECKPOINT.fullmatch(name.removesuffix(TEMPORARY_SUFFIX)):
        found = ("checkpoint", *_describe_checkpoint(file, superblock))
    elif number is not None and superblock and int(number[1]) < superblock.journal_files:
        found = ("journal", *_describe_journal(name, superblock, verdict))
    elif name.endswith(TEMPORARY_SUFFIX):
        found = ("left-over", Verdict.NOTICE, _LEFT_OVER)
    return found


def _describe_superblock(superblock: Superblock | None) -> str:
    if superblock is None:
        return "cannot be read"
    end = "a clean stop" if superblock.is_clean else "no clean stop"
    return f"checkpoint {superblock.checkpoint_number}, journal from {superblock.tail}, {end}"


def _describe_checkpoint(file: Path, superblock: Superblock | None) -> tuple[Verdict, str]:
    if superblock is None:
        return Verdict.NOTICE, "not judged: the superblock names the one that counts"
    number = superblock.checkpoint_number
    if not number or file.name != checkpoint_name(number):
        return Verdict.REPAIRED, f"not the one that counts ({number}); removed at the next start"
    try:
        checkpoint = decode_checkpoint(read_file(file))
    except (OSError, CorruptError, VersionError) as error:
        return Verdict.DAMAGED, str(error)
    return Verdict.FINE, f"{len(checkpoint.groups)} groups, up to record {checkpoint.covered}"


def _describe_journal(
    name: str, superblock: Superblock, verdict: JournalVerdict | None
) -> tuple[Verdict, str]:
    if verdict is None:
        return Verdict.NOTICE, "not judged: what comes before it must be put right first"
    for used in verdict.used:
        if journal_name(used.ordinal % superblock.journal_files) == name:
            lap = used.ordinal // superblock.journal_files + 1
            if used.last < used.first:
                return Verdict.FINE, f"lap {lap}, empty"
            return Verdict.FINE, f"lap {lap}, records {used.first} to {used.last}"
    return Verdict.FINE, "free"
