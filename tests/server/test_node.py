"""A node in this process: in which order it carries out what its shard wants."""

import asyncio
from pathlib import Path

import pytest

from headrace.ports.segments import SegmentFile, WriteSegment
from headrace.runtime.files.segments import SegmentFiles
from headrace.server.config.load import load_config
from headrace.server.node import Node
from headrace.transports.tcp import TcpListener


def test_answers_leave_before_batches_go_to_their_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(TcpListener, "flush_replies", lambda _: done.append("replies"))
    monkeypatch.setattr(SegmentFiles, "submit", lambda *_: done.append("segment"))
    effect = WriteSegment(1, SegmentFile(1, 1, 0, 0), 0, (b"header and batch",))

    async def main() -> None:
        config = load_config(None, {}, {"server.data_dir": str(tmp_path)}, "dev")
        node = Node(config, version="0.1.0", boot_identity=1, root_password_hash=lambda _: "hash")
        try:
            carry_out = node._handlers()
            carry_out[WriteSegment](effect)
        finally:
            node.close()

    asyncio.run(main())
    assert done == ["replies", "segment"]
