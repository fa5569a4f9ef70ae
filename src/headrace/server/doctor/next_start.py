"""Predicts what the next start does with the files of one partition, by the code of a start.

```
journal -> PartitionMachine -> OpenSegments -> SegmentOpener.judge     what is put away or a fault
                            -> WriteSegment -> is_left_of_write        what is kept before a write
```

The machine applies what checkpoint and journal have, trims, retention and purges included. Its
effects are inspected, not carried out.

Flow: recover.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.metadata.target import PartitionTarget
from headrace.partitions.beyond import is_left_of_write
from headrace.partitions.machine import PartitionMachine
from headrace.partitions.options import PartitionOptions
from headrace.partitions.shared import PartitionsShared
from headrace.ports.probes import Probes
from headrace.ports.recovered import RecoveredGroup
from headrace.ports.segments import (
    OpenSegments,
    SegmentExtent,
    SegmentFile,
    SegmentsOpened,
    SegmentWritten,
    WriteSegment,
)
from headrace.runtime.files.quarantine import QUARANTINE_NAME, Quarantine
from headrace.runtime.files.segment_opening import Beyond, SegmentOpener
from headrace.runtime.files.segment_tree import SegmentTree
from headrace.runtime.files.whole import read_all
from headrace.server.doctor.report import Verdict
from headrace.wire.errors import CorruptError
from headrace.wire.replica.prepares import PREPARE

_AGAIN = "written since the checkpoint: the next start writes it again from the journal"
_DROPPED = "dropped by the log: the next start removes it"
_ZEROS = "zeros behind the end of the log: the next start cuts them off"
_KEPT = "the next start keeps them in quarantine"
_OTHERS = "bytes that the journal does not have, where it will be written again"
_FENCED = "left as it is: the partition is fenced for what is damaged"

NOT_JUDGED = (Verdict.NOTICE, "not judged: what the stores lack must be put right first")

Judged = dict[SegmentFile, tuple[Verdict, str]]


@contextmanager
def opened_tree(root: Path) -> Iterator[SegmentTree | None]:
    """Open the folder of segments for reading; yield none if it does not exist."""
    if not root.is_dir():
        yield None
        return
    tree = SegmentTree(root, _ignore, is_changing=False)
    try:
        yield tree
    finally:
        tree.close()


def judge_start(
    tree: SegmentTree, group: RecoveredGroup | None, target: PartitionTarget, lost_until: int
) -> Judged:
    """Return the fate of each existing segment file; checkpointed ones may be missing.

    `lost_until`: offsets below it may have been assigned and lost in a power failure; 0 for none.

    Raises:
        CorruptError: The ops of the partition do not follow each other.
    """
    machine = _replay(group, target)
    machine.open(is_whole=True, lost_until=lost_until)
    (effect,) = [each for each in machine.take_effects() if isinstance(each, OpenSegments)]
    opener = SegmentOpener(tree, Quarantine(tree.folder.parent / QUARANTINE_NAME), _ignore)
    beyond = opener.judge(effect)
    judged = _read_judgement(opener, effect, beyond)
    if not beyond.faults:
        machine.step(SegmentsOpened(effect.token, ()))
        judged |= _judge_writes(tree, machine)
    return judged


def is_dropped(judged: Judged, file: SegmentFile) -> bool:
    """Whether a start will not need a file that the checkpoint names."""
    return judged.get(file) == (Verdict.REPAIRED, _DROPPED)


def _replay(group: RecoveredGroup | None, target: PartitionTarget) -> PartitionMachine:
    options = PartitionOptions(
        namespace=target.group,
        created_revision=target.created_revision,
        segment_bytes=target.segment_bytes,
    )
    machine = PartitionMachine(options, PartitionsShared(), Probes())
    checkpoint = None if group is None else group.checkpoint
    covered = 0
    if checkpoint is not None and checkpoint.commit_header:
        machine.install(checkpoint.artifacts)
        covered = PREPARE.decode(checkpoint.commit_header).op
    for entry in () if group is None else group.entries:
        if entry.header.op <= covered:
            continue
        if entry.body is None:
            raise CorruptError(f"op {entry.header.op} is gone")
        machine.apply(entry.header, entry.body)
    return machine


def _read_judgement(opener: SegmentOpener, effect: OpenSegments, beyond: Beyond) -> Judged:
    """Return the decision of the start for each file."""
    assert effect.end is not None
    judged: Judged = {each.file: (Verdict.REPAIRED, _AGAIN) for each in effect.end.segments}
    for file in effect.end.dropped:
        judged[file] = (Verdict.REPAIRED, _DROPPED)
    for names, name in beyond.gone:
        if name.endswith(".log"):
            base_offset = int(name.removesuffix(".log"))
            file = SegmentFile(
                effect.namespace, effect.created_revision, int(names[-1]), base_offset
            )
            judged[file] = (Verdict.REPAIRED, _DROPPED)
    for extent, why in beyond.too_long:
        judged[extent.file] = _judge_remains(opener, extent, why)
    for file, why in beyond.strange:
        judged[file] = (Verdict.NOTICE, f"{why}: {_KEPT}")
    if beyond.faults:  # Then a start changes nothing at all.
        judged = dict.fromkeys(judged, (Verdict.NOTICE, _FENCED))
    for fault in beyond.faults:
        judged[fault.file] = (Verdict.DAMAGED, fault.sentence)
    return judged


def _judge_remains(opener: SegmentOpener, extent: SegmentExtent, why: str) -> tuple[Verdict, str]:
    if opener.is_kept(extent):
        return Verdict.NOTICE, f"{why}: {_KEPT}"
    return Verdict.REPAIRED, _ZEROS


def _judge_writes(tree: SegmentTree, machine: PartitionMachine) -> Judged:
    """Find bytes that a start keeps because its writes would destroy them."""
    judged: Judged = {}
    while not machine.is_stored:
        machine.store()
        writes = [each for each in machine.take_effects() if isinstance(each, WriteSegment)]
        assert writes
        for write in writes:
            if not _is_own(tree, write):
                judged[write.file] = (Verdict.NOTICE, f"{_OTHERS}: {_KEPT}")
            machine.step(SegmentWritten(write.token, is_done=True))
    return judged


def _is_own(tree: SegmentTree, write: WriteSegment) -> bool:
    new = b"".join(write.parts)
    try:
        with tree.opened_file(write.file, os.O_RDONLY) as fd:
            return is_left_of_write(read_all(fd, len(new), write.position), new)
    except FileNotFoundError:
        return True  # The start creates it.


def _ignore(_: str) -> None:
    """Ignore complaints: nothing is changed."""
