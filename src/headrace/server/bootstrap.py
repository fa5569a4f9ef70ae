"""Starts a node, runs it until a signal ends it, and reports a failure in one sentence.

Flow: recover.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from headrace.base.secret import Secret
from headrace.runtime.allocator import give_back, keep_large_blocks
from headrace.runtime.credentials import CredentialHasher, generate_password
from headrace.runtime.files.disk import DiskFailedError
from headrace.runtime.host import boot_identity as read_boot_identity
from headrace.runtime.pinning import pin_process
from headrace.runtime.pump import PumpFailedError, hasten_threads, new_event_loop
from headrace.server import lines
from headrace.server.audit_log import AuditFileError, audit_log
from headrace.server.config.relations import is_loopback_only
from headrace.server.config.sections import ServerConfig
from headrace.server.folders import (
    LOCK_NAME,
    FolderLockedError,
    FolderRefusedError,
    StrangeFolderError,
    hold_folder,
)
from headrace.server.holders import find_lock_holder, find_port_holder
from headrace.server.node import ListenFailedError, Node

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Why a node cannot start, or ends by itself; anything else is a bug and shows its trace.
_REASONS = (
    FolderLockedError,
    FolderRefusedError,
    StrangeFolderError,
    ListenFailedError,
    PumpFailedError,
    DiskFailedError,
    OSError,
)
_log = logging.getLogger(__name__)


def run(
    config: ServerConfig,
    *,
    profile: str,
    is_throwaway: bool,
    cpus: Sequence[int] = (),
    boot_identity: int | None = None,
) -> int:
    """Run a node in the foreground; return the exit code.

    It keeps to `cpus` if there are any (SH-7). `boot_identity` replaces the boot identity of the
    operating system, for tests.
    """
    if not __debug__:
        return _say(lines.assertions_off())
    if cpus:
        pin_process(cpus)
    keep_large_blocks()
    hasten_threads()
    try:
        with hold_folder(config.server.data_dir), audit_log(config.audit.file):
            return _run_held(config, is_throwaway=is_throwaway, boot_identity=boot_identity)
    except AuditFileError as error:
        return _say(lines.audit_unusable(str(error)))
    except _REASONS as error:
        return _say(_sentence_of(error, config))


def _say(sentence: str) -> int:
    sys.stderr.write(f"headrace: {sentence}\n")
    return 1


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _show_once(secret_line: str) -> None:
    """Show a secret to the operator: on the terminal, if there is one.

    Without a terminal it goes to stderr, which may be collected; the guide says so.
    """
    stream = next((each for each in (sys.stderr, sys.stdout) if each.isatty()), sys.stderr)
    stream.write(f"{secret_line}\n")
    stream.flush()


def _sentence_of(error: Exception, config: ServerConfig) -> str:
    """Return why a node could not start, or ended by itself."""
    folder = config.server.data_dir
    match error:
        case FolderLockedError():
            return lines.folder_locked(folder, find_lock_holder(folder / LOCK_NAME))
        case FolderRefusedError():
            return lines.folder_refused(folder, str(error))
        case StrangeFolderError():
            return lines.folder_of_others(folder)
        case ListenFailedError():
            holder = find_port_holder(error.endpoint)
            return lines.listen_failed(error.path, error.endpoint, error.why, holder)
        case OSError():
            return lines.folder_unusable(folder, error)
        case _:
            if not isinstance(error.__cause__, (OSError, DiskFailedError)):
                _log.critical("the shard has failed", exc_info=error)  # A bug: it must be seen.
            return lines.node_failed(str(error))


def _run_held(config: ServerConfig, *, is_throwaway: bool, boot_identity: int | None) -> int:
    def root_password_hash(hasher: CredentialHasher) -> str:
        password = config.root.password
        if password is None:
            made = generate_password()
            # Before anything else: the hash of this password may be on the disk after a crash.
            _show_once(lines.password_line(config.root.username, made))
            password = Secret(made.encode())
        return hasher.hash_now(password)

    if not is_loopback_only(config):
        _log.warning("%s", lines.plaintext_line(config))
    loop = new_event_loop()
    try:
        return loop.run_until_complete(
            _serve(
                Node(
                    config,
                    version=version("headrace"),
                    boot_identity=(
                        read_boot_identity() if boot_identity is None else boot_identity
                    ),
                    root_password_hash=root_password_hash,
                ),
                config,
                is_throwaway=is_throwaway,
            )
        )
    finally:
        loop.close()


async def _serve(node: Node, config: ServerConfig, *, is_throwaway: bool) -> int:
    """Run a node until a signal; the first one drains it, later ones are ignored."""
    loop = asyncio.get_running_loop()
    wanted: asyncio.Future[str] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        if not wanted.done():
            wanted.set_result(number.name)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    running = loop.create_task(node.run())
    helpers: list[asyncio.Task[Any]] = [running]
    try:
        starting = loop.create_task(node.listen())
        helpers.append(starting)
        waited: list[asyncio.Future[Any]] = [wanted, running]
        await asyncio.wait([*waited, starting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not running.done():
            listening = await starting
            give_back()
            helpers.append(loop.create_task(node.sample()))
            _print(
                lines.ready_line(
                    config, tcp=listening.tcp, http=listening.http, is_throwaway=is_throwaway
                )
            )
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        sys.stderr.write(lines.stopping_line(wanted.result()) + "\n")
        for helper in helpers:
            if helper is not running:
                helper.cancel()
        await node.drain()
        await running
        sys.stderr.write(lines.stopped_line(config) + "\n")
        return 0
    finally:
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        node.close()
