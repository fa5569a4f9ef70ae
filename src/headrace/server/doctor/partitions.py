"""Judges everything below `partitions`: what a checkpoint names, and what none does."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.placement import owner_of
from headrace.metadata.machine import MetadataMachine
from headrace.metadata.target import PartitionTarget
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import SegmentFile
from headrace.runtime.files.segment_tree import is_ours, namespace_of
from headrace.server.doctor.losses import examine_losses
from headrace.server.doctor.next_start import NOT_JUDGED, Judged, judge_start, opened_tree
from headrace.server.doctor.report import FileReport, Verdict
from headrace.server.doctor.segments import checkpointed_log, examine_segments
from headrace.server.doctor.stores import StoreExam
from headrace.server.folders import PARTITIONS_NAME
from headrace.shard.consensus.replicas import origin_of
from headrace.wire.errors import CorruptError
from headrace.wire.numbers import Operation

_OURS = re.compile(
    r"(\d{1,7})/(\d{1,4})/(\d{1,6})-(\d+)/(\d+)/(\d{20})\.(log|index|index\.tmp)", re.ASCII
)
_NOT_JUDGED = "not judged: the checkpoint that vouches for it cannot be read"
_YOUNGER = "younger than the checkpoint; the next start makes it anew"
_DELETED = "of a partition that was deleted: the next start removes it"
_UNSEEN = "of a partition that the metadata has not seen, and the journal has: it is left alone"
_ORPHAN = "of a partition that the metadata has not seen: the next start moves it to quarantine"


class Known(msgspec.Struct, frozen=True):
    """The metadata, as far as it can be read: names by number, partitions, how far it goes."""

    topics: dict[tuple[int, int], str]
    partitions: dict[int, PartitionTarget]  # by namespace
    revision: int | None

    def is_here(self, file: SegmentFile) -> bool:
        """Whether a file belongs to an existing partition."""
        target = self.partitions.get(file.namespace)
        return target is not None and target.created_revision == file.created_revision

    def of(self, namespace: int) -> str:
        """Return the name of a partition, or its numbers if the name is not known."""
        stream, topic, partition = unpack_namespace(GroupId(namespace))
        name = self.topics.get((stream, topic), f"stream {stream}, topic {topic}")
        return f"{name}, partition {partition}"


def read_metadata(groups: tuple[RecoveredGroup, ...] | None) -> Known:
    """Apply the metadata of checkpoint and journal, as a start does."""
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
        {each.group: each for each in machine.target().partitions},
        state.revision if is_whole else None,
    )


def judge_partitions(
    root: Path, exams: Sequence[StoreExam], known: Known
) -> tuple[Judged, list[FileReport]]:
    """Return the decision of a start for every segment file, and what it could not apply.

    `exams` are those of the shards. Without all of the metadata and of the journals a start
    refuses: nothing is judged then.
    """
    judged: Judged = {}
    broken: list[FileReport] = []
    is_broken = any(exam.groups is None or exam.is_journal_broken for exam in exams)
    if is_broken or known.revision is None:
        return judged, broken
    groups = {group.state.group: group for exam in exams for group in exam.groups or ()}
    with opened_tree(root) as tree:
        for namespace, target in known.partitions.items() if tree is not None else ():
            assert tree is not None
            group = groups.get(namespace)
            if group is not None and origin_of(group) not in (None, target.created_revision):
                group = None  # The past of an earlier partition of that number.
            lost_until = _lost_until(_owner(exams, namespace), group, target)
            try:
                judged |= judge_start(tree, group, target, lost_until)
            except CorruptError as error:
                text = f"checkpoint and journal of this partition do not hang together: {error}"
                broken.append(_state_report(known.of(namespace), text))
    return judged, broken


def _owner(exams: Sequence[StoreExam], namespace: int) -> StoreExam:
    """Return the exam of the shard that owns a partition."""
    return exams[owner_of(GroupId(namespace), len(exams))]


def _lost_until(exam: StoreExam, group: RecoveredGroup | None, target: PartitionTarget) -> int:
    """Return the offset below which a power failure may have lost messages (FM-7), 0 for none."""
    is_lost = exam.is_power_loss if group is None else group.state.is_tail_lost
    is_lost = is_lost and not target.is_persisted
    return exam.ceilings.get(target.group, 0) if is_lost else 0


def _state_report(name: str, text: str) -> FileReport:
    return FileReport(
        path=f"{PARTITIONS_NAME}: {name}",
        what="state",
        verdict=Verdict.DAMAGED,
        text=text,
        partition=name,
    )


def examine_partition(
    root: Path, group: RecoveredGroup, names: Known, judged: Judged, *, is_journal_broken: bool
) -> Iterator[FileReport]:
    """Judge the files that the checkpoint of one partition names, and what the journal has."""
    name = names.of(group.state.group)
    if _is_deleted(group, names):
        return
    try:
        log = checkpointed_log(group)
    except CorruptError as error:
        text = f"the checkpoint of this partition does not hang together: {error}"
        yield _state_report(name, text)
        return
    if log is not None:
        yield from examine_segments(root, log, judged, name)
    if is_journal_broken:
        losses = examine_losses(PARTITIONS_NAME, group, log, name)
        if losses is not None:
            yield losses


def _is_deleted(group: RecoveredGroup, names: Known) -> bool:
    """Whether a partition was created and deleted: its files are removed."""
    origin = origin_of(group)
    if names.revision is None or origin is None or origin > names.revision:
        return False
    target = names.partitions.get(group.state.group)
    return target is None or target.created_revision != origin


class Strays:
    """Judges files that no checkpoint names; without groups of their shard they cannot be."""

    def __init__(self, exams: Sequence[StoreExam], names: Known, judged: Judged) -> None:
        self._exams = exams  # of the shards
        self._names = names
        self._judged = judged
        self._held = {group.state.group: None for exam in exams for group in exam.groups or ()}

    def examine(self, root: Path, path: str) -> FileReport | None:
        """Judge one file, by its path from the root; none if the name is not one of ours."""
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
        is_known = _owner(self._exams, file.namespace).groups is not None
        if not is_known or known.revision is None:
            return Verdict.NOTICE, _NOT_JUDGED
        if not known.is_here(file):
            if file.created_revision <= known.revision:
                return Verdict.REPAIRED, _DELETED
            return Verdict.NOTICE, _UNSEEN if file.namespace in self._held else _ORPHAN
        if path.suffix != ".log":
            return Verdict.REPAIRED, _YOUNGER
        return self._judged.get(file, NOT_JUDGED)
