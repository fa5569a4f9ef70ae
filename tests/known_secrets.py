"""The secrets that tests make up, and the search for them in what a node leaves behind.

A password of a test begins with `MARKER`, or is one of `WORDS`; a token is remembered by whoever
is given it. `watched_nodes.py` has what every node of the tests left searched before it goes.
"""

import base64
from contextlib import suppress
from pathlib import Path

MARKER = b"hush-hush"  # nine bytes: what follows does not change how they look in base64
WORDS = (
    b"secret-1",
    b"secret-2",
    b"secret-of-",
    "pässwörd".encode(),
    b"correct horse battery",
)
HASH_MARK = b"$argon2"  # is in the data, and must not be in what a node prints
OUTPUT_SUFFIX = ".log"
DATA_MARK = "layout"  # the file that every data folder has

assert len(MARKER) % 3 == 0

_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)
_tokens: dict[bytes, None] = {}


class LeakedError(AssertionError):
    """A secret was found where none may be; the message says in which files."""


def make_password(of: str) -> bytes:
    """Give the password of a user of the tests."""
    return MARKER + b"-" + of.encode()


def remember(token: str) -> None:
    """Have a token searched for, from now until the run ends."""
    _tokens[token.encode()] = None


def search(place: Path) -> list[str]:
    """Name each file of a folder, or a file, that holds a secret, and how the secret begins."""
    found = []
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        with suppress(FileNotFoundError):  # The node may still run.
            held = _held_in(_written_in(path), is_output=path.suffix == OUTPUT_SUFFIX)
            found += [f"{path} holds {_beginning(secret)}" for secret in held]
    return found


def check_nodes(folder: Path) -> None:
    """Search the data and the output of every node that ran somewhere below a folder.

    Other files may hold secrets: configurations do.

    Raises:
        LeakedError: There is one.
    """
    datas = [path.parent for path in folder.rglob(DATA_MARK)]
    outputs = list(folder.rglob(f"*{OUTPUT_SUFFIX}"))
    _complain([leak for place in (*datas, *outputs) for leak in search(place)])


def check_output(said: str) -> None:
    """Search what a node printed and a test has read.

    Raises:
        LeakedError: It holds a secret.
    """
    held = _held_in(said.encode(), is_output=True)
    _complain([f"what a node printed holds {_beginning(secret)}" for secret in held])


def _complain(leaks: list[str]) -> None:
    if leaks:
        raise LeakedError("\n".join(["secrets were left behind:", *leaks]))


def _beginning(secret: bytes) -> str:
    """Give how a secret begins, not the whole: this is printed."""
    return f"{secret[:12].decode(errors='replace')!r}..."


def _held_in(written: bytes, *, is_output: bool) -> list[bytes]:
    wanted = [*_looks_of(MARKER), *WORDS, *_tokens]
    if is_output:
        wanted.append(HASH_MARK)
    return [secret for secret in wanted if secret in written]


def _written_in(path: Path) -> bytes:
    """Give a file without its blocks of zeros: a journal is mostly that, and no secret has one."""
    with path.open("rb") as file:
        blocks = iter(lambda: file.read(_BLOCK_BYTES), b"")
        return b"".join([block for block in blocks if block != _ZEROS[: len(block)]])


def _looks_of(secret: bytes) -> tuple[bytes, ...]:
    """Give a secret as it may have been written."""
    return secret, secret.hex().encode(), base64.b64encode(secret)
