"""Runs the commands of a guide's page in a real terminal's place, and writes what they printed.

python -m tools.record_minutes

The page holds what is to be run; its answers are written anew:

```
`$ command`    in a console block: run by bash, in one folder for the whole page; what it prints,
               on both outputs, follows it
`$ headrace dev`, `$ headrace serve`
               stay up, as in a terminal of their own, once they are ready
`$ export A=b` holds for all commands after it
`^C`           in a console block: interrupts the one that was started last; its last words follow
`# name`       as the first line of any other block: the block is a file of that name
```

Nodes are given free ports, and the usual ones are written down in their place, so that a page can
be recorded beside nodes that run. What differs from run to run is made equal by `steady`.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "first-ten-minutes.md"
COMMAND_SECONDS_MAX = 120
USUAL_TCP, USUAL_HTTP = "127.0.0.1:8090", "127.0.0.1:3000"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_READY = re.compile(r"is ready: .*?tcp (\S+?), http http://(\S+?),")
_NODE = re.compile(r"headrace (dev|serve)\b")
_EXPORT = re.compile(r"export (\w+)=(\S+)")
_FILE = re.compile(r"# ([\w.-]+)\n")

# What differs from run to run, and what stands for it when two recordings are compared.
_VOLATILE = (
    (re.compile(r"/tmp/[\w./-]+"), "<path>"),  # noqa: S108  # a text, not a place
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\d+(\.\d+)? ?(us|ms|s)\b"), "<span>"),
    (re.compile(r"\b\d{16}\b"), "<micros>"),
    (re.compile(r'"size_bytes": \d+'), '"size_bytes": <size>'),  # by how many batches there were
    (re.compile(r"\d[\d,.]* (GiB|MiB|KiB|B)\b"), "<size>"),
    (re.compile(r"\d[\d,.]*( messages)?/s"), "<rate>"),
    (re.compile(r"process \d+"), "process <n>"),
    (re.compile(r"(\d+) files: \1 fine"), "<n> files: all fine"),  # by the number of cores
    (re.compile(r"has the password \S+"), "has the password <made>"),
    (re.compile(r" {2,}|─+"), "  "),  # how wide a column is
)


class RecordError(Exception):
    """The page could not be run; the text says where."""


class Terminal:
    """One folder, the nodes that were started in it, and the ports that they really have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: list[subprocess.Popen[str]] = []
        clean = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("HEADRACE_", "IGGY_", "PYTEST_", "COV_"))
        }
        self._environment = clean | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "COLUMNS": "100",
            "HEADRACE_TCP_ADDRESS": "127.0.0.1:0",
            "HEADRACE_HTTP_ADDRESS": "127.0.0.1:0",
        }
        self._usual: dict[str, str] = {}

    def save(self, name: str, text: str) -> None:
        """Make a file."""
        path = self._folder / name
        path.write_text(text)
        path.chmod(0o600)

    def run(self, command: str) -> str:
        """Run one command; give what it printed."""
        exported = _EXPORT.fullmatch(command)
        if exported is not None:
            self._environment[exported[1]] = exported[2]
            return ""
        if _NODE.match(command):
            return self._start(command)
        done = subprocess.run(  # noqa: S603  # a command of our own page
            ["bash", "-c", command],  # noqa: S607
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        return self._as_usual(done.stdout)

    def interrupt(self) -> str:
        """End the node that was started last as Ctrl-C would; give its last words."""
        node = self._nodes.pop()
        node.send_signal(signal.SIGINT)
        words, _ = node.communicate(timeout=COMMAND_SECONDS_MAX)
        return self._as_usual(words)

    def close(self) -> None:
        """End what still runs."""
        for node in self._nodes:
            node.kill()
            node.communicate()

    def _start(self, command: str) -> str:
        node = subprocess.Popen(  # noqa: S603  # a command of our own page
            ["bash", "-c", f"exec {command}"],  # noqa: S607
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._nodes.append(node)
        assert node.stdout is not None
        said = []
        for line in node.stdout:
            said.append(line)
            ready = _READY.search(line)
            if ready is not None:
                self._usual = {ready[1]: USUAL_TCP, ready[2]: USUAL_HTTP}
                self._environment["HEADRACE_ADDRESS"] = ready[1]
                return self._as_usual("".join(said))
        raise RecordError(f"{command} did not start: {''.join(said)}")

    def _as_usual(self, text: str) -> str:
        for bound, usual in self._usual.items():
            text = text.replace(bound, usual)
        return text


@contextmanager
def terminal() -> Iterator[Terminal]:
    """Give a terminal in a new folder; both are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="headrace-minutes-") as folder:
        made = Terminal(Path(folder))
        try:
            yield made
        finally:
            made.close()


def record(page: str) -> str:
    """Run all commands of a page in their order; give the page with what they printed."""
    with terminal() as place:

        def answer(block: re.Match[str]) -> str:
            kind, text = block[1], block[2]
            if kind != "console":
                named = _FILE.match(text)
                if named is not None:
                    place.save(named[1], text)
                return block[0]
            return f"```console\n{_record_block(place, text)}```"

        return _BLOCK.sub(answer, page)


def _record_block(place: Terminal, text: str) -> str:
    parts = []
    for line in text.splitlines():
        if line.startswith("$ "):
            parts.append(f"{line}\n{_ended(place.run(line[2:]))}")
        elif line == "^C":
            parts.append(f"{line}\n{_ended(place.interrupt())}")
    return "".join(parts)


def _ended(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def steady(page: str) -> str:
    """Give a page without what differs from run to run."""
    for pattern, standing in _VOLATILE:
        page = pattern.sub(standing, page)
    return page


if __name__ == "__main__":
    recorded = record(PAGE.read_text())
    PAGE.write_text(recorded)
    print(f"{PAGE.name}: {recorded.count(chr(10) + '$ ')} commands")
