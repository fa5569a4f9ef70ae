"""The folders below `partitions`: where segments are, which names are durable, what may be removed.

Invariants: no symbolic link below the root is followed; a folder is removed only when it is empty,
            and not while a file is being made in it.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from headrace.base.ids import (
    GroupId,
    Namespace,
    PartitionId,
    StreamId,
    TopicId,
    pack_namespace,
)
from headrace.base.limits import PARTITIONS_PER_TOPIC_MAX, STREAMS_MAX, TOPICS_PER_STREAM_MAX
from headrace.kernel import OFFSET_MAX
from headrace.ports.segments import SegmentFile
from headrace.runtime.files.folders import FOLDER_MODE, make_folder
from headrace.wire.segment import partition_names, segment_name

FILE_MODE = 0o600

_OURS = re.compile(r"([0-9]{20})\.(log|index|index\.tmp)")
_PARTITION = re.compile(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FENCED = "the partition is fenced and its files are left as they are"

Names: TypeAlias = tuple[str, ...]  # of a folder, from the root down


class SegmentTree:
    """All folders and files of segments below one root; threads may share it.

    `complain` receives what cannot be removed.
    """

    def __init__(
        self, folder: Path, complain: Callable[[str], None], *, is_changing: bool = True
    ) -> None:
        """Open the root; if `is_changing`, create it and set its permissions."""
        self.folder = folder
        self._complain = complain
        if is_changing:
            make_folder(folder)
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        if is_changing:
            os.fchmod(self._root, FOLDER_MODE)
        self.making = Lock()  # held while a file is made: its folder may be empty until then
        self._durable_folders: dict[Names, None] = {}  # used by the worker alone

    def close(self) -> None:
        """Close the root."""
        os.close(self._root)

    # Places.

    def path_of(self, file: SegmentFile) -> Path:
        """Return the path of a segment, for messages."""
        return self.folder.joinpath(*folder_names(file), segment_name(file.base_offset))

    def sentence(self, file: SegmentFile, verb: str, error: OSError, so: str = _FENCED) -> str:
        """Report what failed on a file, and the consequence."""
        return f"{self.path_of(file)}: cannot {verb} it: {error.strerror}; {so}"

    @contextmanager
    def opened_folder(self, names: Names, *, make: bool = False) -> Iterator[int]:
        """Open a folder step by step, so that no symbolic link is followed on the way."""
        folder = os.dup(self._root)
        try:
            for name in names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, FOLDER_MODE, dir_fd=folder)
                below = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def opened_file(self, file: SegmentFile, flags: int) -> Iterator[int]:
        """Open a segment that exists."""
        with self.opened_folder(folder_names(file)) as folder:
            fd = open_file(segment_name(file.base_offset), flags, folder)
        try:
            yield fd
        finally:
            os.close(fd)

    # Lists.

    def partitions(self) -> list[tuple[int, int]]:
        """Return the partitions that have a folder: namespace and revision of their creation."""
        found = []
        for stream in self._numbers(()):
            for topic in self._numbers((stream,)):
                for name in self._folders((stream, topic)):
                    number = _PARTITION.fullmatch(name)
                    if number is None:
                        continue
                    namespace = namespace_of(int(stream), int(topic), int(number[1]))
                    if namespace is not None:
                        found.append((namespace, int(number[2])))
        return sorted(found)

    def _numbers(self, names: Names) -> list[str]:
        return [name for name in self._folders(names) if name == "0" or _is_number(name)]

    def _folders(self, names: Names) -> list[str]:
        try:
            with self.opened_folder(names) as folder, os.scandir(folder) as entries:
                found = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(found)

    # Names.

    def sync_names(self, names: Names) -> None:
        """Make a new file durable in its folder, and folders that may be new in theirs."""
        with self.opened_folder(names) as folder:
            os.fsync(folder)
        for depth in range(len(names), 0, -1):
            if names[:depth] in self._durable_folders:
                return
            with self.opened_folder(names[: depth - 1]) as folder:
                os.fsync(folder)
        for depth in range(len(names), 0, -1):
            self._durable_folders[names[:depth]] = None

    # Removing.

    def files_of(self, partition: Names) -> Iterator[tuple[Names, str]]:
        """Return the files of all histories of a partition whose names are ours."""
        for names in self._folders_of(partition):
            with self.opened_folder(names) as folder, os.scandir(folder) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if is_ours(entry.name) and entry.is_file(follow_symlinks=False)
                ]
            for name in sorted(found):
                yield names, name

    def _folders_of(self, partition: Names) -> list[Names]:
        return [(*partition, name) for name in self._numbers(partition)]

    def remove_file(self, names: Names, name: str) -> None:
        """Remove a file, if it exists; complain if that fails."""
        try:
            self.unlink(names, name)
        except OSError as error:
            self._complain(f"{self.folder.joinpath(*names, name)}: cannot remove it: {error}")

    def unlink(self, names: Names, name: str) -> None:
        """Remove a file, if it exists.

        Raises:
            OSError: It is still there.
        """
        try:
            with self.opened_folder(names) as folder:
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass  # An index may be missing, and a removal may be repeated.

    def remove_empty_folders(self, partition: Names) -> None:
        """Remove the folders of a partition, as far as they are empty."""
        for names in self._folders_of(partition):
            self.remove_empty(names)
        self.remove_empty(partition)

    def remove_empty(self, names: Names) -> None:
        """Remove a folder and those above it, as far as they are empty."""
        with self.making:
            for depth in range(len(names), 0, -1):
                try:
                    with self.opened_folder(names[: depth - 1]) as folder:
                        os.rmdir(names[depth - 1], dir_fd=folder)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        self._complain(f"{self.folder.joinpath(*names[:depth])}: {error}")
                    return
                self._durable_folders.pop(names[:depth], None)


def folder_names(file: SegmentFile) -> Names:
    """Return the folder of a segment: that of one history of its partition."""
    names = partition_names(file.namespace, file.created_revision)
    return (*names, str(file.history_epoch))


def is_ours(name: str) -> bool:
    """Whether a file has the name of a segment or an index: that of an offset that can exist."""
    found = _OURS.fullmatch(name)
    return found is not None and int(found[1]) <= OFFSET_MAX


def index_name(base_offset: int) -> str:
    """Return the name of the index of the segment that begins at an offset."""
    return segment_name(base_offset).removesuffix(".log") + ".index"


def namespace_of(stream: int, topic: int, partition: int) -> GroupId | None:
    """Return the namespace of three numbers; none if no partition can have them."""
    is_possible = (
        stream < STREAMS_MAX
        and topic < TOPICS_PER_STREAM_MAX
        and partition < PARTITIONS_PER_TOPIC_MAX
    )
    if not is_possible:
        return None
    return pack_namespace(Namespace(StreamId(stream), TopicId(topic), PartitionId(partition)))


def open_file(name: str, flags: int, folder: int) -> int:
    """Open a regular file of a folder; anything else of that name is an error."""
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and not name.startswith("0")
