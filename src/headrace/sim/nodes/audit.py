"""At the end: whether a healed core has stored everything, and whether it holds what it must.

Nodes are equal (R2), segment files hold exactly the committed batches (R3), and a client that reads
every partition at every node finds every retained message (P1).
"""

from collections.abc import Sequence

from headrace.base.limits import SEGMENT_HEADER_BYTES
from headrace.partitions.writer import header_block
from headrace.sim.nodes.actions import STREAM, Action, poll_action
from headrace.sim.nodes.checkers import METADATA, Checkers
from headrace.sim.nodes.history import History
from headrace.sim.nodes.model import Batch
from headrace.sim.nodes.running import Host, machines_of, replicas_of, running_of
from headrace.sim.violation import SimViolationError
from headrace.wire.commands.messages import PollMessages
from headrace.wire.errors import Code
from headrace.wire.identifiers import Consumer, FromOffset
from headrace.wire.numbers import ConsumerKind

_AUDITOR = Consumer(ConsumerKind.CONSUMER, 9)


def why_not_open(core: Sequence[Host]) -> str:
    """Return which node has not opened its segments yet, or nothing."""
    shards = [(host, each) for host, running in running_of(core) for each in running.shards]
    for host, running in shards:
        if not running.shard.partitions.is_open:
            return f"segments of node {host.index} are not open"
        status = running.shard.partitions.reconcile_status()
        if status.is_passing or status.tombstoned or status.failures or status.doubted:
            return f"node {host.index} has still to reconcile: {status}"
        if status.wanted != status.actual or status.passed_revision != status.revision:
            return f"node {host.index} has other partitions than metadata: {status}"
    return ""


def compare(core: Sequence[Host], checkers: Checkers) -> None:
    """Check that all nodes of the core are equal, and that nothing was lost.

    Raises:
        SimViolationError: They are not, or something was.
    """
    first = core[0]
    for key, replica in replicas_of(first).items():
        history = checkers.histories[key]
        if replica.commit_min < history.head and not history.is_shortened:
            raise SimViolationError("P1", group=key, commit=replica.commit_min, was=history.head)
        for other in core[1:]:
            twin = replicas_of(other)[key]
            nodes = (first.index, other.index)
            if replica.table.encode() != twin.table.encode():
                raise SimViolationError("R2", why="request table", group=key, nodes=nodes)
            if replica.machine.export() != twin.machine.export():
                raise SimViolationError("R2", why="export", group=key, nodes=nodes)


def why_not_stored(core: Sequence[Host], checkers: Checkers) -> str:
    """Return which segment is not written yet, or nothing.

    Raises:
        SimViolationError: A file holds something else than was committed (R3).
    """
    for host in core:
        for key, machine in machines_of(host).items():
            if not machine.is_stored:
                # Until it has written all, a file may be as a power cut left it.
                return f"node {host.index} has still to write segments of {key}"
            history = checkers.histories[key]
            assert history.model is not None
            for file, data in history.model.files().items():
                wanted = header_block(file) + data
                held = host.folder.content(file) or b""
                if file in host.folder.rotten or held == wanted:
                    continue
                if not wanted.startswith(held):
                    raise SimViolationError(
                        "R3", node=host.index, file=file, held=len(held), wanted=len(wanted)
                    )
                return f"{file} of node {host.index} has {len(held)} of {len(wanted)} bytes"
    return ""


def reading(core: Sequence[Host], checkers: Checkers, piece_bytes: int) -> list[tuple[Action, int]]:
    """Return the polls by which a client reads every segment at every node.

    Of a damaged segment every piece that is whole must be found; what others hold may be refused.
    """
    script = []
    for key in replicas_of(core[0]):
        if key == METADATA:
            continue
        history = checkers.histories[key]
        for host in core:
            script += [(action, host.index) for action in _polls(history, host, piece_bytes)]
    return script


def _polls(history: History, host: Host, piece_bytes: int) -> list[Action]:
    assert history.model is not None
    polls = []
    for segment, file in zip(history.model.segments, history.model.files(), strict=True):
        if file not in host.folder.rotten:
            polls.append(_poll(history, segment.batches))
            continue
        held = host.folder.content(file) or b""
        at = SEGMENT_HEADER_BYTES
        for piece in _pieces(segment.batches, piece_bytes):
            wanted = b"".join(batch.data for batch in piece)
            is_whole = held[at : at + len(wanted)] == wanted
            polls.append(_poll(history, piece, is_damaged=not is_whole))
            at += len(wanted)
    return polls


def _pieces(batches: Sequence[Batch], piece_bytes: int) -> list[list[Batch]]:
    """Cut the batches of a segment into what is proven by one chain: each as long as it must be."""
    pieces: list[list[Batch]] = []
    size = piece_bytes
    for batch in batches:
        if size >= piece_bytes:
            pieces.append([])
            size = 0
        pieces[-1].append(batch)
        size += len(batch.data)
    return pieces


def _poll(history: History, batches: Sequence[Batch], *, is_damaged: bool = False) -> Action:
    """Return the poll that must find some batches, or, if they are damaged, may be refused."""
    topic, partition = history.name.split("/")
    first, last = batches[0].base_offset, batches[-1].end_offset - 1
    body = PollMessages(
        consumer=_AUDITOR,
        stream=STREAM,
        topic=topic,
        partition_id=int(partition),
        strategy=FromOffset(first),
        count=10_000,
        auto_commit=False,
    )
    if is_damaged:
        return poll_action(body, codes=(Code.CANNOT_READ_MESSAGE,))
    return poll_action(body, codes=(), audited=(history.key, first, last))
