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

from headrace.runtime.allocator import give_back, keep_large_blocks
from headrace.runtime.host import boot_identity as read_boot_identity
from headrace.runtime.open_files import raise_open_files
from headrace.runtime.pinning import pin_process
from headrace.runtime.pump import hasten_threads, new_event_loop
from headrace.server import lines
from headrace.server.allocation import ShardPlace
from headrace.server.audit_log import audit_log
from headrace.server.config.relations import is_loopback_only
from headrace.server.config.sections import ServerConfig
from headrace.server.folders import hold_folder
from headrace.server.node import Node
from headrace.server.root_password import make_root_password_hash
from headrace.server.supervisor import ShardsFailedError, Supervisor
from headrace.server.why import REASONS, sentence_of

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


def run(
    config: ServerConfig,
    *,
    is_throwaway: bool,
    places: Sequence[ShardPlace] = (ShardPlace(),),
    boot_identity: int | None = None,
) -> int:
    """Run a node in the foreground; return the exit code.

    It has as many shards as places; one shard runs in this process. `boot_identity` replaces the
    boot identity of the operating system, for tests.
    """
    if not __debug__:
        return _say(lines.assertions_off())
    identity = read_boot_identity() if boot_identity is None else boot_identity
    try:
        with hold_folder(config.server.data_dir) as lock:
            if not is_loopback_only(config):
                _log.warning("%s", lines.plaintext_line(config))
            if len(places) > 1:
                return _supervise(
                    config, places, lock=lock, boot_identity=identity, is_throwaway=is_throwaway
                )
            return _run_alone(config, places[0], boot_identity=identity, is_throwaway=is_throwaway)
    except ShardsFailedError as error:
        return _say(str(error))
    except REASONS as error:
        return _say(sentence_of(error, config))


def _say(sentence: str) -> int:
    sys.stderr.write(f"headrace: {sentence}\n")
    return 1


def _supervise(
    config: ServerConfig,
    places: Sequence[ShardPlace],
    *,
    lock: int,
    boot_identity: int,
    is_throwaway: bool,
) -> int:
    supervisor = Supervisor(
        config, places, boot_identity=boot_identity, lock=lock, is_throwaway=is_throwaway
    )
    asyncio.run(supervisor.run())
    return 0


def _run_alone(
    config: ServerConfig, place: ShardPlace, *, boot_identity: int, is_throwaway: bool
) -> int:
    if place.cpus:
        pin_process(place.cpus)
    raise_open_files()
    keep_large_blocks()
    hasten_threads()
    loop = new_event_loop()
    try:
        with audit_log(config.audit.file):
            node = Node(
                config,
                version=version("headrace"),
                boot_identity=boot_identity,
                root_password_hash=make_root_password_hash(config),
            )
            return loop.run_until_complete(_serve(node, config, is_throwaway=is_throwaway))
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
            line = lines.ready_line(
                config, tcp=listening.tcp, http=listening.http, is_throwaway=is_throwaway
            )
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
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
