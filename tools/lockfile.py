"""Reads a lock: what is installed, in which version, with which hashes, and for whose sake."""

import re
from pathlib import Path
from typing import NamedTuple

_HEAD = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))? \\"
)
_HASH = re.compile(r"    --hash=sha256:(?P<digest>[0-9a-f]{64})(?: \\)?")
_VIA = re.compile(r"    #   (?P<first>.+)|    # via (?P<only>.+)")
_VIA_HEAD = "    # via"


class LockError(ValueError):
    """A lock does not read as one; the message names the line."""


class Locked(NamedTuple):
    """One package as a lock pins it."""

    name: str
    version: str
    marker: str  # where it is installed; empty means everywhere
    hashes: tuple[str, ...]  # SHA-256 of each of its files that may be installed
    wanted_by: tuple[str, ...]  # packages, or the input that names it


def read_lock(path: Path) -> list[Locked]:
    """Give the packages of a lock, in its order.

    Raises:
        LockError: A line is none of a lock, or a package has no hash.
    """
    packages: list[Locked] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if head := _HEAD.fullmatch(line):
            packages.append(Locked(head["name"], head["version"], head["marker"] or "", (), ()))
            continue
        if not packages:
            raise LockError(f"{path}:{number}: no package stands before {line!r}")
        last = packages[-1]
        if found := _HASH.fullmatch(line):
            packages[-1] = last._replace(hashes=(*last.hashes, found["digest"]))
        elif via := _VIA.fullmatch(line):
            packages[-1] = last._replace(wanted_by=(*last.wanted_by, via["first"] or via["only"]))
        elif line != _VIA_HEAD:
            raise LockError(f"{path}:{number}: no line of a lock: {line!r}")
    for package in packages:
        if not package.hashes:
            raise LockError(f"{path}: {package.name} has no hash")
    return packages
