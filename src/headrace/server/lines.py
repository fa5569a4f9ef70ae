"""The messages of a node to its operator. Pure: facts in, one line out."""

import errno
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from headrace import __version__
from headrace.base.endpoints import Endpoint
from headrace.server.config.relations import has_default_credentials, open_addresses
from headrace.server.config.sections import SETTINGS, ServerConfig


class Holder(msgspec.Struct, frozen=True):
    """The process that holds what the node needs."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({one_line(self.name)})"


def ready_line(
    config: ServerConfig, *, tcp: Endpoint | None, http: Endpoint | None, is_throwaway: bool
) -> str:
    """Return the message that the node serves: its name, version, bound addresses, folder.

    The user is named under `dev`, with the password only if it is the well-known one.
    """
    parts = [f"{config.server.name} is ready: headrace {__version__} {config.profile}"]
    if tcp is not None:
        parts.append(f"tcp {tcp}")
    if http is not None:
        parts.append(f"http http://{http}")
    note = " (thrown away at the end)" if is_throwaway else ""
    parts.append(f"data {one_line(config.server.data_dir)}{note}")
    if config.profile == "dev":
        known = f"/{config.root.username}" if has_default_credentials(config) else ""
        parts.append(f"user {config.root.username}{known}")
    return ", ".join(parts)


def password_line(username: str, password: str) -> str:
    """Return the line with the generated password; it goes to the console and to no log."""
    return f"root user {username} has the password {password} (shown this once: keep it)"


def plaintext_line(config: ServerConfig) -> str:
    """Return the warning that other machines can connect without TLS, with addresses (SE-8)."""
    addresses = ", ".join(f"{path} = {config.show(path)}" for path in open_addresses(config))
    return (
        f"no TLS off loopback at {addresses}: passwords and messages travel in clear, as "
        f"tls.allow_plaintext = {config.show('tls.allow_plaintext')} allows"
    )


def listen_failed(path: str, endpoint: Endpoint, error: OSError, holder: Holder | None) -> str:
    """Return the message why a listener could not be bound; `path` is the key of its address."""
    flag = SETTINGS[path].setting.flag
    if error.errno == errno.EADDRINUSE:
        by = f" by {holder}" if holder else ""
        return f"{endpoint} is taken{by}: choose another port with {flag} HOST:PORT, or 0 for any"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{endpoint} is no address of this machine: choose another with {flag} HOST:PORT"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{endpoint} may not be used by this user: choose a port above 1023 with {flag}"
    return f"{endpoint} cannot be listened on: {_why(error)}"


def folder_locked(folder: Path, holder: Holder | None) -> str:
    """Return the message that another process has the data folder of a node that starts."""
    return f"{_in_use(folder, holder)}: stop it, or choose another folder with --data"


def folder_not_at_rest(folder: Path, holder: Holder | None) -> str:
    """Return the message that a node has the data folder that is to be examined."""
    return f"{_in_use(folder, holder)}: stop it first, for what it writes changes under the reader"


def _in_use(folder: Path, holder: Holder | None) -> str:
    return f"{one_line(folder)} is in use by {holder or 'another process'}"


def folder_unusable(folder: Path, error: OSError) -> str:
    """Return the message why a data folder cannot be made or opened."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{one_line(folder)} cannot be written by this user: choose another with --data"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{one_line(folder)} is not a folder: choose another with --data"
    return f"{one_line(folder)} cannot be used: {_why(error)}"


def folder_refused(folder: Path, sentence: str) -> str:
    """Return the message that the folder must not be opened, and was not changed."""
    return f"{one_line(folder)} is refused and unchanged: {one_line(sentence)}"


def audit_unusable(sentence: str) -> str:
    """Return the message why the file of the audit log cannot be used."""
    return f"audit.file {one_line(sentence)}; name another, stderr or off"


def folder_of_others(folder: Path) -> str:
    """Return the message that the folder holds only files of something else."""
    return (
        f"{one_line(folder)} holds files and no node's data: name an empty folder, or one of a node"
    )


def node_failed(sentence: str) -> str:
    """Return the message why the node ended by itself."""
    return f"the node ended: {one_line(sentence)}"


def assertions_off() -> str:
    """Return the message that a server does not run without its assertions."""
    return "the server does not start under python -O: its assertions keep data safe"


def stopping_line(signal_name: str) -> str:
    """Return the message that a signal was understood and requests in flight are being finished."""
    return f"{signal_name}: finishing what is in flight"


def full_line(folder: Path) -> str:
    """Return the message that something waits for space on the disk, and what that means."""
    return (
        f"no space left for {folder}: sends are refused once the journal is full, polls go on; "
        "make room, and service resumes by itself"
    )


def space_line() -> str:
    """Return the message that nothing waits for space any more."""
    return "there is space again"


def leap_line(*, believed: int, clock: int) -> str:
    """Return the message that the clock is not believed, what that means, and what to do."""
    if clock < believed:
        return (
            f"the clock says {_time(clock)}, behind {_time(believed)}, which this node goes by: "
            "stamps go on from there, and nothing expires before the clock has come there"
        )
    return (
        f"the clock says {_time(clock)}, ahead of {_time(believed)}, which this node goes by: it "
        "leapt, or the node was down; nothing expires by it. If the clock is right, run: headrace "
        "node accept-time"
    )


def clock_line(now: int) -> str:
    """Return the message that the node goes by the clock again."""
    return f"the node goes by its clock again: {_time(now)}"


def _time(micros: int) -> str:
    try:
        return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{micros} us"  # beyond the range of datetime


def stopped_line(config: ServerConfig) -> str:
    """Return the message that the stop was clean."""
    return f"{config.server.name} has stopped"


def one_line(text: object) -> str:
    """Return a text without the characters that would break the line or the terminal."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(text)
    )


def _why(error: OSError) -> str:
    return one_line(error.strerror or error)
