"""Judges everything below `partitions`: what a checkpoint names, and what none does."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.metadata.machine import MetadataMachine
from headrace.partitions.pieces import Place
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentFile
from headrace.runtime.segment_tree import is_ours, namespace_of
from headrace.server.doctor_beyond import JournalEnd, find_end, judge_beyond
from headrace.server.doctor_losses import examine_losses
from headrace.server.doctor_report import FileReport, Verdict
from headrace.server.doctor_segments import checkpointed_log, examine_segments
from headrace.server.folders import PARTITIONS_NAME
from headrace.shard.plane import origin_of
from headrace.wire.errors import CorruptError
from headrace.wire.numbers import Operation

_OURS = re.compile(
    r"(\d{1,7})/(\d{1,4})/(\d{1,6})-(\d+)/(\d+)/(\d{20})\.(log|index|index\.tmp)", re.ASCII
)
_NOT_JUDGED = "not judged: the checkpoint that vouches for it cannot be read"
_YOUNGER = "younger than the checkpoint; the next start makes it anew"
_DELETED = "of a partition that was deleted: the next start removes it"
_ORPHAN = "of a partition that the metadata has not seen: the next start moves it to quarantine"


class Known(msgspec.Struct, frozen=True):
    """What the metadata says, if it can be read: names by number, partitions, how far it goes."""

    topics: dict[tuple[int, int], str]
    partitions: dict[int, int]  # namespace: revision at which it was created
    revision: int | None

    def of(self, namespace: int) -> str:
        """Give a partition as people call it, by its numbers where the name is not known."""
        stream, topic, partition = unpack_namespace(GroupId(namespace))
        name = self.topics.get((stream, topic), f"stream {stream}, topic {topic}")
        return f"{name}, partition {partition}"


def read_metadata(groups: tuple[RecoveredGroup, ...] | None) -> Known:
    """Apply what checkpoint and journal have of the metadata, as a start does."""
    machine = MetadataMachine()
    is_whole = groups is not None
    for group in groups or ():
        if group.checkpoint is not None and group.checkpoint.artifacts:
            machine.install(group.checkpoint.artifacts)
        for entry in group.entries:
            if entry.body is None:
                is_whole = False
                break
            if entry.header.operation != Operation.REGISTER:  # Consensus alone knows sessions.
                machine.apply(entry.header, entry.body)
    state = machine.state
    return Known(
        {
            (stream.id, topic.id): f"{stream.name}/{topic.name}"
            for stream in state.streams
            for topic in stream.topics
        },
        {each.group: each.created_revision for each in machine.target().partitions},
        state.revision if is_whole else None,
    )


def examine_partition(
    root: Path, group: RecoveredGroup, names: Known, *, is_journal_broken: bool
) -> Iterator[FileReport]:
    """Judge the files that the checkpoint of one partition names, and what the journal has."""
    name = names.of(group.state.group)
    try:
        log = checkpointed_log(group)
    except CorruptError as error:
        text = f"the checkpoint of this partition does not hang together: {error}"
        yield FileReport(
            path=f"{PARTITIONS_NAME}: {name}",
            what="state",
            verdict=Verdict.DAMAGED,
            text=text,
            partition=name,
        )
        return
    if log is not None:
        yield from examine_segments(root, log, find_end(group, log), name)
    if is_journal_broken:
        losses = examine_losses(PARTITIONS_NAME, group, log, name)
        if losses is not None:
            yield losses


class Strays:
    """Judges files that no checkpoint names; without groups nothing can be told of them."""

    def __init__(self, groups: tuple[RecoveredGroup, ...] | None, names: Known) -> None:
        self._names = names
        self._groups = None if groups is None else {group.state.group: group for group in groups}

    def examine(self, root: Path, path: str) -> FileReport | None:
        """Judge one file, named by its path from the root; nothing if the name is none of ours."""
        found = _OURS.fullmatch(path)
        namespace = None if found is None else namespace_of(*map(int, found.group(1, 2, 3)))
        is_named = found is not None and is_ours((root / path).name)
        if found is None or not is_named or namespace is None or (root / path).is_symlink():
            return None
        file = SegmentFile(namespace, int(found[4]), int(found[5]), int(found[6]))
        verdict, text = self._judge(root / path, file)
        return FileReport(
            path=f"{PARTITIONS_NAME}/{path}",
            what="segment" if found[7] == "log" else "index",
            verdict=verdict,
            text=text,
            size_bytes=(root / path).lstat().st_size,
            partition=self._names.of(namespace),
        )

    def _judge(self, path: Path, file: SegmentFile) -> tuple[Verdict, str]:
        known = self._names
        if self._groups is None or known.revision is None:
            return Verdict.NOTICE, _NOT_JUDGED
        group = self._groups.get(file.namespace)
        is_held = group is not None and origin_of(group) == file.created_revision
        if not is_held and known.partitions.get(file.namespace) != file.created_revision:
            is_seen = file.created_revision <= known.revision
            return (Verdict.REPAIRED, _DELETED) if is_seen else (Verdict.NOTICE, _ORPHAN)
        if path.suffix != ".log":
            return Verdict.REPAIRED, _YOUNGER
        place = Place(file.base_offset, SEGMENT_HEADER_BYTES)
        return judge_beyond(path, file, place, self._end(group))

    def _end(self, group: RecoveredGroup | None) -> JournalEnd:
        if group is None:
            return JournalEnd()
        try:
            return find_end(group, checkpointed_log(group))
        except CorruptError:
            return JournalEnd()  # Its checkpoint has a verdict of its own.
