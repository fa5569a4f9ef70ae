"""States that no primary sends: each is refused, and the replica pulls a true one afterwards."""

import msgspec
import pytest

from headrace.base.checksum import xxh3_64
from headrace.ports.machine import Artifact
from headrace.vsr.events import FrameReceived
from headrace.vsr.transfer_session import CLIENT_TABLE, COMMIT_HEADER, describe
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.artifacts import encode_manifest
from headrace.wire.replica.decode import decode_replica
from headrace.wire.replica.transfers import (
    RequestStateChunkHeader,
    StateChunkHeader,
    StateTransferTargetHeader,
)
from tests.vsr.cluster import Cluster, Node
from tests.vsr.commands import Commands

TARGET, CHUNK = FrameKind.STATE_TRANSFER_TARGET, FrameKind.STATE_CHUNK


def pulling() -> tuple[Cluster, StateTransferTargetHeader, list[Artifact]]:
    """Return a cluster whose third replica waits for a manifest; its header, and the true state."""
    commands = Commands()
    lines = [
        *["cluster 3", "register 0 a", "deliver", "request 0 a 1 apple", "deliver", "beat"],
        *["crash 2", "request 0 a 2 pear", "deliver", "request 0 a 3 plum", "deliver", "beat"],
        *["checkpoint 0", "checkpoint 1", "restart 2", "deliver request-start-view"],
        *["deliver start-view", "drop prepare", "deliver request-prepares"],
        *["drop repair-prepare", "deliver range-evicted", "deliver request-state-transfer"],
    ]
    for line in lines:
        commands.run(line)
    cluster = commands.cluster
    [(_, sent)] = cluster.flying
    cluster.flying.clear()
    _, header = decode_replica(sent.frame)
    assert isinstance(header, StateTransferTargetHeader)
    assert header.commit_op == 4
    replica = cluster.nodes[0].replica
    pieces = [piece for piece in replica.machine.export() if isinstance(piece, Artifact)]
    true = [
        Artifact(COMMIT_HEADER, 4, replica.checkpoint().commit_header),
        Artifact(CLIENT_TABLE, 4, replica.table.encode()),
        *pieces,
    ]
    return cluster, header, true


def offer(
    node: Node, header: StateTransferTargetHeader, state: list[Artifact], mask: int = 0
) -> None:
    """Offer a state in the name of the primary, and send what is asked for, maybe changed."""
    manifest = encode_manifest(tuple(describe(each) for each in state))
    node.step(FrameReceived(0, TARGET, header, bytes(256) + manifest))
    while node.sent and node.sent[-1].frame[KIND_OFFSET] == FrameKind.REQUEST_STATE_CHUNK:
        _, asked = decode_replica(node.sent.pop().frame)
        assert isinstance(asked, RequestStateChunkHeader)
        piece = state[asked.artifact].data[asked.offset : asked.offset + asked.length]
        answer(node, asked, bytes(byte ^ mask for byte in piece))


def answer(node: Node, asked: RequestStateChunkHeader, piece: bytes, sender: int = 0) -> None:
    told = StateChunkHeader(
        nonce=asked.nonce,
        offset=asked.offset,
        artifact=asked.artifact,
        checksum_body=xxh3_64(piece),
    )
    node.step(FrameReceived(sender, CHUNK, told, bytes(256) + piece))


def finish(cluster: Cluster) -> None:
    """Let the replica go on, with the true primary."""
    node = cluster.nodes[2]
    assert node.replica.commit_min < 4
    for _ in range(8):  # Whom a repair asks is drawn, and only the primary has a state to send.
        for timer in list(node.timers):
            cluster.fire(2, timer)
        cluster.deliver_all()
    assert node.replica.commit_min == 4


def test_the_true_state_is_installed() -> None:
    cluster, header, true = pulling()
    offer(cluster.nodes[2], header, true)
    assert cluster.nodes[2].replica.commit_min == 4


@pytest.mark.parametrize(
    "lie", ["no pieces", "no header", "another op", "other bytes", "a longer piece"]
)
def test_a_false_state_is_refused(lie: str) -> None:
    cluster, header, true = pulling()
    node = cluster.nodes[2]
    if lie == "no pieces":
        offer(node, header, [])
    elif lie == "no header":
        offer(node, header, true[1:])
        assert "transfer.refused" in node.probes.counts
    elif lie == "other bytes":
        offer(node, header, true, mask=1)
        assert "transfer.refused" in node.probes.counts
    elif lie == "another op":
        offer(node, msgspec.structs.replace(header, commit_op=5), true)
        assert "transfer.refused" in node.probes.counts
    else:
        manifest = encode_manifest(tuple(describe(each) for each in true))
        node.step(FrameReceived(0, TARGET, header, bytes(256) + manifest))
        _, asked = decode_replica(node.sent.pop().frame)
        assert isinstance(asked, RequestStateChunkHeader)
        answer(node, asked, bytes(1000))
        answer(node, asked, b"")
    finish(cluster)


def test_only_the_source_of_a_state_sends_it() -> None:
    cluster, header, true = pulling()
    node = cluster.nodes[2]
    manifest = encode_manifest(tuple(describe(each) for each in true))
    node.step(FrameReceived(0, TARGET, header, bytes(256) + manifest))
    _, asked = decode_replica(node.sent.pop().frame)
    assert isinstance(asked, RequestStateChunkHeader)
    piece = true[asked.artifact].data[asked.offset : asked.offset + asked.length]
    node.sent.clear()
    answer(node, asked, piece, sender=1)
    assert not node.sent
    answer(node, asked, piece)
    assert node.sent
