"""Writes docs/walks/*.md: which functions a restart, a send and a micro-batch pass, in order.

    python -m tools.walks

Each page is recorded from a run of the code that ships: a node in memory that was killed and starts
again, a send to a real node, and the stream reader of the Spark source as Spark calls it. A line is
a call from one module into another, below the call that made it; a function stands where it is
called first. So a page changes when the way changes, and not with the data.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from pyspark.sql.streaming.datasource import ReadAllAvailable

import headrace
from bench.frames import Shape
from headrace.spark.source import HeadraceSource
from headrace.wire.commands import streams, topics
from tests.node import running_node
from tests.server.counted_node import TRIES, counted_node
from tests.shard.whole import Whole
from tests.spark.conftest import ALL_COLUMNS

PAGES = Path(__file__).parents[1] / "docs" / "walks"
_SOURCE = str(Path(headrace.__file__).parent) + "/"
_DEPTH_MAX = 7


class Walk:
    """Records calls from module to module of the given packages, as paths with a slash."""

    def __init__(self, *packages: str, depth_max: int = _DEPTH_MAX) -> None:
        self.lines: list[str] = []
        self._depth_max = depth_max
        self._packages = packages
        self._known: dict[tuple[str, str], None] = {}
        self._stack: list[tuple[FrameType, str]] = []  # frame and module, outermost first

    @contextmanager
    def recording(self, title: str) -> Iterator[None]:
        """Record what this thread calls, under a heading."""
        self.lines += ["", f"## {title}", ""]
        sys.setprofile(self.on_event)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._stack.clear()

    @property
    def modules_count(self) -> int:
        """How many modules were walked through."""
        return len({module for module, _ in self._known})

    def on_event(self, frame: FrameType, event: str, _: object) -> None:
        """Take an event of the profiler."""
        if event == "return":
            if self._stack and self._stack[-1][0] is frame:
                self._stack.pop()
            return
        if event != "call" or not frame.f_code.co_filename.startswith(_SOURCE):
            return
        module = frame.f_code.co_filename.removeprefix(_SOURCE).removesuffix(".py")
        if not module.startswith(self._packages):
            return
        name = frame.f_code.co_qualname
        caller = self._stack[-1][1] if self._stack else ""
        if "<" in name or "__" in name or module == caller:
            return
        self._stack.append((frame, module))
        if (module, name) not in self._known and len(self._stack) <= self._depth_max:
            self._known[module, name] = None
            indent = "  " * (len(self._stack) - 1)
            self.lines.append(f"{indent}- `{name}` in `{module}`{_meaning(frame)}")


def _meaning(frame: FrameType) -> str:
    """Return the first line of the function's docstring, as an aside."""
    constants = frame.f_code.co_consts
    text = constants[0] if constants and isinstance(constants[0], str) else ""
    first = text.strip().split("\n")[0]
    return f": {first}" if first[:1].isupper() and first.endswith(".") else ""


def walk_restart() -> list[str]:
    """Return the walk of a node that was killed, from its files to its first answer."""
    walk = Walk("storage/", "vsr/", "metadata/", "partitions/", "shard/")
    node = Whole()
    client = node.client()
    client.ask(streams.CREATE_STREAM, streams.CreateStream("orders"))
    client.ask(topics.CREATE_TOPIC, topics.CreateTopic("orders", 1, "placed"))
    for number in range(3):
        client.send("orders", "placed", [b"order %d" % number])
    node.end()
    node.is_checking = False  # A node that ships does not.
    with walk.recording("From the files to a node that serves"):
        node.start()
    return walk.lines


def walk_send() -> list[str]:
    """Return the walk of a single send, from the readable socket to the written reply."""
    packages = ("transports/", "runtime/", "server/", "shard/", "vsr/", "storage/", "partitions/")
    with TemporaryDirectory() as folder, counted_node(Path(folder)) as node:
        walks = []
        for _ in range(TRIES):
            walk = Walk(*packages, "metadata/", "wire/", depth_max=99)
            node.counter.watch = walk.on_event
            walks.append((node.count_send(Shape(1, 100), tries=1), walk))
        node.counter.watch = None
    calls, walk = min(walks, key=lambda each: each[0])  # where no tick fell into it
    told = f"{calls} calls of Python and C functions, {walk.modules_count} modules."
    return ["", "## A message of 100 bytes, class `replicated`", "", told, "", *walk.lines]


def walk_micro_batch() -> list[str]:
    """Return the walk of one micro-batch of the Spark source."""
    walk = Walk("spark/", "client/calls/")
    with running_node() as node, headrace.connect(str(node.tcp)) as client:
        client.create_stream("orders")
        client.create_topic("orders/placed", partitions=1)
        client.send("orders/placed", [b"order"])
        options = {
            "address": str(node.tcp),
            "topic": "orders/placed",
            "startingOffsets": "earliest",
        }
        reader = HeadraceSource(options).streamReader(ALL_COLUMNS)
        start = reader.initialOffset()
        with walk.recording("plan: choose the offsets of the batch (driver)"):
            end = reader.latestOffset(start, ReadAllAvailable())
        with walk.recording("plan: cut it into slices, one for each task (driver)"):
            slices = reader.partitions(start, end)
        with walk.recording("read: fetch one slice as Arrow batches (executor)"):
            rows = [batch.num_rows for each in slices for batch in reader.read(each)]
        assert sum(rows) == 1
        with walk.recording("checkpoint: the batch is done (driver)"):
            reader.commit(end)
    return walk.lines


_HEAD = """\
# The walk of {what}

Written by `python -m tools.walks` from a run: change the code, not this page. A line is a call into
another module, below the call that made it; a function stands where it is called first.
"""

WALKS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "restart.md": ("a restart", walk_restart),
    "send.md": ("a send", walk_send),
    "micro-batch.md": ("a micro-batch", walk_micro_batch),
}


def render(page: str) -> str:
    """Return a whole page."""
    assert threading.current_thread() is threading.main_thread(), "the profiler sees one thread"
    what, walk = WALKS[page]
    return _HEAD.format(what=what) + "\n".join(walk()) + "\n"


if __name__ == "__main__":
    PAGES.mkdir(exist_ok=True)
    for page in WALKS:
        (PAGES / page).write_text(render(page))
        print(page)
