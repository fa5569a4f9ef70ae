"""Judges everything below `partitions`: what a checkpoint names, and what none does."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from headrace.base.ids import (
    GroupId,
    Namespace,
    PartitionId,
    StreamId,
    TopicId,
    pack_namespace,
    unpack_namespace,
)
from headrace.base.limits import PARTITIONS_PER_TOPIC_MAX, STREAMS_MAX, TOPICS_PER_STREAM_MAX
from headrace.metadata.snapshot import read_snapshot
from headrace.ports.recovered import RecoveredGroup
from headrace.server.doctor_losses import examine_losses
from headrace.server.doctor_report import FileReport, Verdict
from headrace.server.doctor_segments import checkpointed_log, examine_segments
from headrace.server.folders import PARTITIONS_NAME
from headrace.shard.plane import origin_of
from headrace.wire.errors import CorruptError

_OURS = re.compile(r"(\d{1,7})/(\d{1,4})/(\d{1,6})-(\d+)/\d+/\d{20}\.(log|index|index\.tmp)")
_NOT_JUDGED = "not judged: the checkpoint that vouches for it cannot be read"
_YOUNGER = "younger than the checkpoint: removed, and written again from the journal"
_GONE = "of a partition that is gone; nothing reads it, and it may be removed"


class PartitionNames(msgspec.Struct, frozen=True):
    """Names of streams and topics by number, as the checkpoint of the metadata has them."""

    topics: dict[tuple[int, int], str]

    def of(self, namespace: int) -> str:
        """Give a partition as people call it, by its numbers where the name is not known."""
        stream, topic, partition = unpack_namespace(GroupId(namespace))
        name = self.topics.get((stream, topic), f"stream {stream}, topic {topic}")
        return f"{name}, partition {partition}"


def read_names(groups: Iterable[RecoveredGroup]) -> PartitionNames:
    """Read the names from the checkpoint of the metadata; what is younger has numbers only."""
    topics = {}
    for group in groups:
        for artifact in group.checkpoint.artifacts if group.checkpoint else ():
            state, _ = read_snapshot(artifact.data)
            for stream in state.streams:
                for topic in stream.topics:
                    topics[stream.id, topic.id] = f"{stream.name}/{topic.name}"
    return PartitionNames(topics)


def examine_partition(
    root: Path, group: RecoveredGroup, names: PartitionNames, *, is_journal_broken: bool
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
        yield from examine_segments(root, log, name)
    if is_journal_broken:
        losses = examine_losses(PARTITIONS_NAME, group, log, name)
        if losses is not None:
            yield losses


class Strays:
    """Judges files that no checkpoint names; without groups nothing can be told of them."""

    def __init__(self, groups: tuple[RecoveredGroup, ...] | None, names: PartitionNames) -> None:
        self._names = names
        self._revisions = (
            None if groups is None else {group.state.group: origin_of(group) for group in groups}
        )

    def examine(self, root: Path, path: str) -> FileReport | None:
        """Judge one file, named by its path from the root; nothing if the name is none of ours."""
        found = _OURS.fullmatch(path)
        namespace = None if found is None else _namespace(*map(int, found.group(1, 2, 3)))
        if found is None or namespace is None or (root / path).is_symlink():
            return None
        verdict, text = self._judge(namespace, int(found[4]))
        return FileReport(
            path=f"{PARTITIONS_NAME}/{path}",
            what="segment" if found[5] == "log" else "index",
            verdict=verdict,
            text=text,
            size_bytes=(root / path).lstat().st_size,
            partition=self._names.of(namespace),
        )

    def _judge(self, namespace: int, created_revision: int) -> tuple[Verdict, str]:
        if self._revisions is None:
            return Verdict.NOTICE, _NOT_JUDGED
        if self._revisions.get(namespace) == created_revision:
            return Verdict.REPAIRED, _YOUNGER
        return Verdict.NOTICE, _GONE


def _namespace(stream: int, topic: int, partition: int) -> GroupId | None:
    is_possible = (
        stream < STREAMS_MAX
        and topic < TOPICS_PER_STREAM_MAX
        and partition < PARTITIONS_PER_TOPIC_MAX
    )
    if not is_possible:
        return None
    return pack_namespace(Namespace(StreamId(stream), TopicId(topic), PartitionId(partition)))
