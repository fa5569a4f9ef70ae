"""Sees every node that a test starts, and has what it leaves behind searched for secrets.

```
subprocess.Popen of `headrace dev` or `serve`   its data folder is noted
shutil.rmtree of a folder                       the nodes in it are searched before it goes
the end of the run                              what is still there is searched; a node of which
                                                something was never searched fails the run
```

Whoever starts a node need not know of it: Python's audit events tell. The output of a node is a
`.log` file beside its data. Where it is not, or where the data goes without `rmtree` (a node throws
its own folder away, a file system is unmounted), the test hands both in: `hand_in`.

What a process of the tests starts in its turn is not seen. It watches for itself, as the runs of
pytest do that `tests/plugin` starts, or leaves its data below the folder of its test.
"""

import os
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.known_secrets import OUTPUT_SUFFIX, LeakedError, check_nodes, check_output

_PROFILES = ("dev", "serve")
_COMMAND = "headrace"
_DRIVER = "booted_node.py"  # of the crash lanes; its second argument is the data folder
_SHELLS = ("sh", "bash")
_DATA_FLAG = "--data"
_DATA_VARIABLE = "HEADRACE_SERVER_DATA_DIR"


@dataclass(frozen=True)
class Started:
    """A node that was started, as long as it was not searched since."""

    command: str
    data: Path | None  # none where it makes one for itself

    def is_in(self, folder: Path) -> bool:
        return self.data is not None and self.data.is_relative_to(folder)

    def has_output(self) -> bool:
        return self.data is not None and any(self.data.parent.glob(f"*{OUTPUT_SUFFIX}"))


class Watch:
    """The nodes of one run that are still to be searched; campaigns start them in threads."""

    def __init__(self) -> None:
        self._unsearched: list[Started] = []
        self._lock = threading.Lock()

    def starts(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        """Note a process that is about to be started, if it is a node.

        One that is started again on its data is noted once, and searched after its last end.
        """
        node = find_node(command, folder, environment)
        if node is None:
            return
        with self._lock:
            if node.data is not None:
                self._unsearched = [each for each in self._unsearched if each.data != node.data]
            self._unsearched.append(node)

    def removes(self, folder: Path) -> None:
        """Search the nodes in a folder that is about to be removed.

        Raises:
            LeakedError: One has left a secret.
        """
        check_nodes(folder)
        with self._lock:
            self._unsearched = [
                each for each in self._unsearched if not (each.is_in(folder) and each.has_output())
            ]

    def hand_in(self, output: str, folder: Path) -> None:
        """Search what the node has printed that was started last in a folder, and the folder.

        Raises:
            LeakedError: It has left a secret.
        """
        check_output(output)
        check_nodes(folder)
        with self._lock:
            for node in reversed(self._unsearched):
                if node.data is None or node.is_in(folder):
                    self._unsearched.remove(node)
                    return

    def finish(self) -> None:
        """Search what is left.

        Raises:
            LeakedError: There is a secret, or something went before it could be searched.
        """
        left, self._unsearched = self._unsearched, []
        gone = []
        for node in left:
            if node.data is None or not node.data.exists() or not node.has_output():
                gone.append(f"{node.command}: its data or its output was never searched")
            else:
                check_nodes(node.data.parent)
        if gone:
            told = "nodes went unsearched; tests/watched_nodes.py says what they need:"
            raise LeakedError("\n".join([told, *gone]))


def find_node(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Started | None:
    """Give the node that a command starts, if it is one that does."""
    words = _unwrapped(command)
    for at, word in enumerate(words):
        name, following = Path(word).name, words[at + 1 :]
        if name == _COMMAND and following[:1] and following[0] in _PROFILES:
            data = _data_among(following, environment)
            return Started(shlex.join(words), None if data is None else (folder / data).absolute())
        if name == _DRIVER:
            return Started(shlex.join(words), (folder / following[1]).absolute())
    return None


def _unwrapped(command: Sequence[str]) -> list[str]:
    """Give the words of a command, of one for a shell those of its script."""
    if Path(command[0]).name not in _SHELLS or "-c" not in command:
        return list(command)
    script = command[command.index("-c") + 1]
    try:
        return shlex.split(script, comments=True)
    except ValueError:  # It is more than words.
        return script.split()


def _data_among(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    for at, word in enumerate(arguments):
        if word == _DATA_FLAG:
            return arguments[at + 1]
        if word.startswith(f"{_DATA_FLAG}="):
            return word.removeprefix(f"{_DATA_FLAG}=")
    return environment.get(_DATA_VARIABLE)


# The watch of this process: an audit hook stays until the end, and asks whether there is one.

_watches: list[Watch] = []


@contextmanager
def watched_nodes() -> Iterator[None]:
    """Watch every node that this process starts; at the end, all must have been searched.

    Raises:
        LeakedError: One has left a secret, or was not searched.
    """
    assert not _watches
    _install_hook()
    watch = Watch()
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)
    watch.finish()


@cache
def _install_hook() -> None:
    sys.addaudithook(_on_event)


def hand_in(output: str, folder: Path) -> None:
    """Search what a node printed, and its data somewhere in a folder, which nobody else could.

    Raises:
        LeakedError: It has left a secret.
    """
    for watch in _watches:
        watch.hand_in(output, folder)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        for watch in _watches:
            _tell_start(watch, *arguments)
    elif event == "shutil.rmtree":
        for watch in _watches:
            watch.removes(Path(os.fsdecode(arguments[0])).absolute())


def _tell_start(
    watch: Watch,
    _: object,
    command: Sequence[str | bytes | os.PathLike[str]],
    folder: str | bytes | os.PathLike[str] | None,
    environment: Mapping[str, str] | None,
) -> None:
    words = [os.fsdecode(word) for word in command]
    start = Path.cwd() if folder is None else Path(os.fsdecode(folder))
    watch.starts(words, start, os.environ if environment is None else environment)
