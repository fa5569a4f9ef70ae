"""Records what the released SDK sends and what it makes of our answers.

A recording server on the loopback answers from a tiny model; a driver runs the calls of `SESSIONS`
through the SDK. Each call is Python text, as at an asyncio prompt, so that the text in a vector is
the code that ran. The recording fails when a method of the SDK's stub is neither driven nor listed
in `SILENT` with its reason. With `--numbers` it records how the SDK that is on the path numbers.
"""

import ast
import asyncio
import collections.abc
import contextlib
import datetime as dt
import enum
import importlib.metadata
import inspect
import json
import platform
import struct
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import apache_iggy
from apache_iggy import TcpConfig, TcpReconnectionConfig

from headrace.base.limits import HEADER_BYTES
from headrace.wire.commands import (
    clients,
    groups,
    messages,
    session,
    streams,
    system,
    tokens,
    topics,
    users,
)
from headrace.wire.commands.table import COMMANDS, AnyCommand, find_command
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason, encode_eviction
from headrace.wire.frames import FrameCutter
from headrace.wire.identifiers import (
    Balanced,
    ByKey,
    Consumer,
)
from headrace.wire.numbers import (
    Acknowledgement,
    ConsumerKind,
    Operation,
    SnapshotCompression,
    SnapshotType,
    is_result_framed,
)
from headrace.wire.options import make_options
from headrace.wire.replies import RESULT_OK, encode_rejection, encode_reply
from headrace.wire.requests import REQUEST, RequestHeader
from tools.recorder_model import QUIET_STATS, TOKEN, Model, make_batch

SDK = "apache-iggy"
SDK_VERSION = importlib.metadata.version(SDK)
FOLDER = Path(__file__).parent.parent / "tests" / "vectors"
CALL_SECONDS_MAX = 10
RUN_SECONDS_MAX = 60
FILE_BYTES_MAX = 400_000

# --- The server: cuts frames, answers from the model or as a call wants it, keeps both. ---

# The reference server answers these with the operation that it really committed.
COMMITTED_AS = {
    Operation.CREATE_TOPIC: Operation.CREATE_TOPIC_WITH_ASSIGNMENTS,
    Operation.CREATE_PARTITIONS: Operation.CREATE_PARTITIONS_WITH_ASSIGNMENTS,
    Operation.DELETE_SEGMENTS: Operation.TRUNCATE_PARTITION,
}

Answer: TypeAlias = Callable[[RequestHeader], bytes]


def status(code: Code) -> Answer:
    """Answer with a status."""
    return lambda header: encode_reply(header, b"", status=code)


def rejection(code: Code) -> Answer:
    """Answer with a result section that refuses."""
    return lambda header: encode_reply(header, encode_rejection(code))


def eviction(reason: EvictionReason) -> Answer:
    """Answer with the end of the session."""
    return lambda header: encode_eviction(reason, header.client)


def body(data: bytes) -> Answer:
    """Answer with this body, under the operation that was asked for."""
    return lambda header: encode_reply(header, data)


@dataclass(frozen=True)
class Exchange:
    """A request and its answer."""

    code: int
    command: str
    request: bytes
    reply: bytes


@dataclass
class Server:
    """Answers on one port; every session has its own, so that no frame is taken for another's."""

    model: Model
    exchanges: list[Exchange] = field(default_factory=list)
    wanted: tuple[int, Answer] | None = None  # the code whose next request gets this answer
    connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it ends."""
        self.connections[writer] = asyncio.current_task()
        cutter = FrameCutter()
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                for frame in cutter.feed(piece):
                    writer.write(self.answer(bytes(frame)))
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        """End all connections."""
        for writer, task in self.connections.items():
            writer.close()
            if task is not None:
                await task

    def answer(self, frame: bytes) -> bytes:
        """Give the answer to a frame, and keep both."""
        header = REQUEST.decode(frame)
        try:
            command = find_command(header)
        except RefusedError as refused:
            reply = encode_reply(header, b"", status=refused.code)
            self.exchanges.append(Exchange(header.code, "unknown", frame, reply))
            return reply
        request = command.decode_request(frame[HEADER_BYTES:])
        code, name = command.code, command.name
        if isinstance(request, session.Register) and request.password is None:
            code, name = session.LOGIN_TOKEN.code, session.LOGIN_TOKEN.name
        if self.wanted is not None and self.wanted[0] == code:
            reply = self.wanted[1](header)
            self.wanted = None
        else:
            reply = self._answer_command(header, command, request)
        self.exchanges.append(Exchange(code, name, frame, reply))
        return reply

    def _answer_command(self, header: RequestHeader, command: AnyCommand, request: object) -> bytes:
        operation = COMMITTED_AS.get(command.operation, command.operation)
        framed = is_result_framed(operation)
        model = self.model
        try:
            payload = model.answer(command, request, header.client)
        except EvictedError as evicted:
            return encode_eviction(evicted.reason or EvictionReason.RESERVED, header.client)
        except RefusedError as refused:
            if not framed:
                return encode_reply(header, b"", status=refused.code, commit=model.op)
            payload = encode_rejection(refused.code)
            return encode_reply(header, payload, operation=operation, op=model.op, commit=model.op)
        is_read = command.operation == Operation.NON_REPLICATED
        return encode_reply(
            header,
            RESULT_OK + payload if framed else payload,
            operation=operation,
            op=header.session if is_read else model.op,
            commit=model.op,
        )


# --- The driver. ---

# The code that a call is about; what else it sends, the SDK sends by itself.
CODES = {
    "ping": 1,
    "get_stats": 10,
    "describe_options": 13,
    "get_user": 31,
    "get_users": 32,
    "create_user": 33,
    "delete_user": 34,
    "update_user": 35,
    "update_permissions": 36,
    "change_password": 37,
    "logout_user": 39,
    "login_user": 40,
    "connect": 40,
    "get_stream": 200,
    "get_streams": 201,
    "create_stream": 202,
    "delete_stream": 203,
    "update_stream": 204,
    "purge_stream": 205,
    "get_topic": 300,
    "get_topics": 301,
    "create_topic": 302,
    "delete_topic": 303,
    "update_topic": 304,
    "purge_topic": 305,
    "create_partitions": 402,
    "delete_partitions": 403,
    "get_consumer_group": 600,
    "get_consumer_groups": 601,
    "create_consumer_group": 602,
    "delete_consumer_group": 603,
    "join_consumer_group": 604,
    "leave_consumer_group": 605,
    "send_messages": 101,
    "send": 101,
    "send_one": 101,
    "send_with_partitioning": 101,
    "send_to": 101,
    "poll_messages": 100,
    "iter_messages": 100,
    "consume_messages": 100,
    "store_offset": 121,
    "delete_offset": 122,
}

# Methods that put nothing on a TCP connection, each driven to make sure of it.
SILENT = {
    "IggyClient.__new__": "builds a client; the connection is opened by `connect`",
    "IggyProducer.__aenter__": "gives the producer itself",
    "IggyConsumer.get_last_consumed_offset": "reads what the consumer remembers",
    "IggyConsumer.get_last_stored_offset": "reads what the consumer remembers",
    "IggyConsumer.name": "reads what the consumer was made with",
    "IggyConsumer.partition_id": "reads what the consumer remembers",
    "IggyConsumer.stream": "reads what the consumer was made with",
    "IggyConsumer.topic": "reads what the consumer was made with",
}

OWNERS = {"client": "IggyClient", "producer": "IggyProducer", "consumer": "IggyConsumer"}


class RecordingError(Exception):
    """The SDK did something else than the calls expect."""


@dataclass(frozen=True)
class Call:
    """Python text to run, and the answer that it shall get if not the model's."""

    name: str
    text: str
    answer: str | None = None
    code: int | None = None

    @property
    def is_error(self) -> bool:
        return self.name.startswith("error/")

    @property
    def is_silent(self) -> bool:
        return self.name.startswith("silent/")

    def methods(self) -> list[str]:
        """Name the SDK's methods that the text calls, as `Class.method`."""
        found = []
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.AsyncWith):
                found += ["IggyProducer.__aenter__", "IggyProducer.__aexit__"]
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id == "IggyClient":
                found.append("IggyClient.__new__")
            if isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value).rstrip("0123456789")
                owner = "IggyClient" if owner.startswith("IggyClient") else OWNERS.get(owner, "")
                found.append(f"{owner}.{node.func.attr}")
        return [name for name in found if name.startswith("Iggy")]

    def about(self) -> int | None:
        """Give the code that the call is about, if it is about one."""
        if self.code is not None:
            return self.code
        names = [name.partition(".")[2] for name in self.methods()]
        return next((CODES[name] for name in names if name in CODES), None)


@dataclass(frozen=True)
class Session:
    """Calls that share a client."""

    name: str
    calls: list[Call]
    nodes_count: int = 1


def read_calls(text: str) -> list[Session]:
    """Read the sessions and their calls."""
    return [
        Session(
            entry["name"],
            [
                Call(name, **({"text": call} if isinstance(call, str) else call))
                for name, call in entry["calls"].items()
            ],
            entry.get("nodes", 1),
        )
        for entry in tomllib.loads(text)["session"]
    ]


Vector: TypeAlias = dict[str, object]


class Driver:
    """Runs calls and turns what they sent into vectors."""

    def __init__(self) -> None:
        self.model = Model()
        self.vectors: dict[str, Vector] = {}
        self.given: dict[str, list[str]] = {}  # method to the vectors that it gave
        self.silent: set[str] = set()  # methods that were run without one frame
        self._seen: set[tuple[int, bytes]] = set()

    async def run_session(self, wanted: Session) -> None:
        """Run the calls of one session against a server of its own."""
        server = Server(self.model)
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        self.model.port = listening.sockets[0].getsockname()[1]
        self.model.nodes_count = wanted.nodes_count
        names = make_names(f"127.0.0.1:{self.model.port}")
        if wanted.nodes_count > 1:
            self._seen.discard((system.GET_CLUSTER_METADATA.code, b""))  # another answer
        async with listening:
            for call in wanted.calls:
                await self._run_call(server, call, names)
            names.clear()
            listening.close()
            await server.close()

    async def _run_call(self, server: Server, call: Call, names: dict[str, Any]) -> None:
        about = call.about()
        if call.answer is not None:
            assert about is not None
            server.wanted = (about, eval(call.answer, names))  # noqa: S307  # our own text
        before = len(server.exchanges)
        outcome = await run_text(call, names)
        if call.name.startswith("setup/") and "returned" in outcome:
            return
        exchanges = [
            exchange for exchange in server.exchanges[before:] if about == 1 or exchange.code != 1
        ]
        if call.is_silent != (not exchanges):
            raise RecordingError(f"{call.name}: {len(exchanges)} exchanges")
        if call.is_error != ("raised" in outcome):
            raise RecordingError(f"{call.name}: {outcome}")
        kept = self._keep(call, exchanges, outcome, about)
        for method in call.methods():
            self.given.setdefault(method, []).extend(kept)
            if call.is_silent:
                self.silent.add(method)

    def _keep(
        self, call: Call, exchanges: list[Exchange], outcome: Vector, about: int | None
    ) -> list[str]:
        kept: list[str] = []
        own: set[bytes] = set()
        for exchange in exchanges:
            is_own = exchange.code == about
            data = exchange.request[HEADER_BYTES:]
            key = (exchange.code, data)
            if data in own if is_own else key in self._seen:
                continue
            name = call.name if is_own else f"{call.name}/{exchange.command.replace(' ', '_')}"
            name = next(n for n in (name, *(f"{name}/{i}" for i in range(2, 100))) if n not in kept)
            if name in self.vectors:
                raise RecordingError(f"{name}: recorded twice")
            self.vectors[name] = {
                "name": name,
                "call": call.text.strip(),
                "code": exchange.code,
                "request": exchange.request.hex(),
                "reply": exchange.reply.hex(),
            } | (outcome if is_own else {"returned": None})
            kept.append(name)
            if is_own:
                own.add(data)
            else:
                self._seen.add(key)
        return kept


async def run_text(call: Call, names: dict[str, Any]) -> Vector:
    """Run a call; give what it returned or raised."""
    tree = ast.parse(call.text)
    mode = "eval" if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) else "exec"
    code = compile(call.text, call.name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        value = eval(code, names)  # noqa: S307  # our own text, read from beside the vectors
        if inspect.iscoroutine(value):
            value = await asyncio.wait_for(value, CALL_SECONDS_MAX)
    except RuntimeError as error:  # what the SDK raises for everything that a server can cause
        return {"raised": {"type": type(error).__name__, "text": str(error)}}
    return {"returned": plain(value)}


def make_names(address: str) -> dict[str, Any]:
    """Give the names that the texts of a session may use."""
    done = asyncio.Event()
    config: dict[str, Any] = {
        "server_address": address,
        "heartbeat_interval": dt.timedelta(hours=1),
        "reconnection": TcpReconnectionConfig(enabled=False),
    }

    async def take(received: collections.abc.AsyncIterator[Any], count: int) -> list[Any]:
        return [await anext(received) for _ in range(count)]

    def stop_after(count: int) -> Callable[[object], collections.abc.Awaitable[None]]:
        taken: list[object] = []

        async def callback(message: object) -> None:
            taken.append(message)
            if len(taken) == count:  # What it commits after the last one must still be sent.
                asyncio.get_running_loop().call_later(0.3, done.set)

        return callback

    wire = {
        name: value
        for module in (clients, groups, messages, streams, system, tokens, topics, users)
        for name, value in vars(module).items()
        if name.isupper() or (isinstance(value, type) and value.__module__ == module.__name__)
    }
    sdk = {name: getattr(apache_iggy, name) for name in apache_iggy.__all__}
    return {
        **{f"wire_{name}" if name in sdk else name: value for name, value in wire.items()},
        **sdk,
        "Acknowledgement": Acknowledgement,
        "Balanced": Balanced,
        "ByKey": ByKey,
        "Code": Code,
        "ConsumerKind": ConsumerKind,
        "EvictionReason": EvictionReason,
        "QUIET_STATS": QUIET_STATS,
        "RESYNC": struct.pack("<IQI", messages.RESYNC_PARTITION, 0, 0),
        "SnapshotCompression": SnapshotCompression,
        "SnapshotType": SnapshotType,
        "TOKEN": TOKEN,
        "address": address,
        "asyncio": asyncio,
        "body": body,
        "config": TcpConfig(**config),
        "configured": lambda **more: TcpConfig(**{**config, **more}),
        "consumed_by": Consumer,
        "done": done,
        "eviction": eviction,
        "make_batch": make_batch,
        "make_options": make_options,
        "rejection": rejection,
        "status": status,
        "stop_after": stop_after,
        "take": take,
        "timedelta": dt.timedelta,
    }


# --- What the SDK returned, as plain JSON. ---


def plain(value: object) -> object:  # noqa: PLR0911  # one for each kind of value
    """Give a value of the SDK as JSON knows it.

    Bytes become hexadecimal text, durations microseconds, enumerations their names, typed header
    fields and other variants a pair of their name and their values, objects a dict of their
    properties, dicts a list of pairs.
    """
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case bytes():
            return value.hex()
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case enum.Enum():
            return value.name
        case list():
            return [plain(item) for item in value]
        case ():  # nothing, from some of its methods
            return None
        case dict():
            return [[plain(key), plain(item)] for key, item in value.items()]
        case _:
            return plain_object(value)


VARIANTS = ("HeaderKey", "HeaderValue", "IggyExpiry", "MaxTopicSize")
UNTOLD = ("IggyClient", "IggyProducer", "IggyConsumer")


def plain_object(value: object) -> object:
    """Give an object of the SDK: a variant with its values, or its properties by name."""
    made = type(value)
    if made.__name__ in UNTOLD:
        return None
    if made.__name__ == "UserStatus":  # no enumeration of Python's
        return repr(value).rpartition(".")[2]
    if made.__mro__[1].__name__ in VARIANTS:
        names: tuple[str, ...] = getattr(made, "__match_args__", ())
        return [made.__name__, *(plain(getattr(value, name)) for name in names)]
    told = {}
    for attribute in sorted(name for name in dir(value) if not name.startswith("_")):
        item = getattr(value, attribute)
        told[attribute] = plain(item() if callable(item) else item)
    return told


# --- The files. ---

# Below this line the page that says where the vectors come from is written by the recorder.
README_MARK = "## As recorded\n"
README_TAIL = """
| | |
|---|---|
| SDK | `{sdk}` {version} from PyPI, over TCP |
| Recorded | {date}, Python {python}, {system} {machine} |
| Calls | `calls.toml`, {calls} calls in {sessions} sessions |
| Vectors | `{file}`, {count} of them, {codes} commands |

Which method gave which vectors:

{driven}

Methods that send nothing over TCP; each was run, and the recording fails if one sends a frame:

{silent}
"""


def stub_methods() -> list[str]:
    """Name every method of the three classes, as the SDK's type stub has them."""
    stub = Path(apache_iggy.__file__).with_suffix(".pyi")
    return [
        f"{node.name}.{item.name}"
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in UNTOLD
        for item in node.body
        if isinstance(item, ast.FunctionDef)
    ]


def check_methods(driver: Driver) -> None:
    """Fail unless each method of the stub gave a vector, or was run and is known to be silent."""
    wrong = [
        name
        for name in stub_methods()
        if (name not in driver.silent if name in SILENT else not driver.given.get(name))
    ]
    if wrong:
        raise RecordingError(f"neither gave a vector nor was run without one: {wrong}")


def make_readme(driver: Driver, sessions: list[Session]) -> str:
    """Give the part of the page that each recording writes anew."""
    driven = ["| Method | Vectors |", "|---|---|"]
    silent = ["| Method | Reason |", "|---|---|"]
    for method in stub_methods():
        if method in SILENT:
            silent.append(f"| `{method}` | {SILENT[method]} |")
        else:
            names = dict.fromkeys(driver.given[method])
            driven.append(f"| `{method}` | {', '.join(f'`{name}`' for name in names)} |")
    return README_TAIL.format(
        sdk=SDK,
        version=SDK_VERSION,
        date=dt.datetime.now(dt.UTC).date(),
        python=platform.python_version(),
        system=platform.system(),
        machine=platform.machine(),
        calls=sum(len(entry.calls) for entry in sessions),
        sessions=len(sessions),
        file=file_name(),
        count=len(driver.vectors),
        codes=len({vector["code"] for vector in driver.vectors.values()} & set(COMMANDS)),
        driven="\n".join(driven),
        silent="\n".join(silent),
    )


def file_name() -> str:
    """Give the name of the file, after the SDK's version."""
    return f"sdk-{SDK_VERSION}.jsonl"


async def record() -> None:
    """Run all sessions and write the files."""
    sessions = read_calls((FOLDER / "calls.toml").read_text())
    driver = Driver()
    for wanted in sessions:
        await driver.run_session(wanted)
    check_methods(driver)
    lines = "".join(json.dumps(vector) + "\n" for vector in driver.vectors.values())
    if len(lines) > FILE_BYTES_MAX:
        raise RecordingError(f"{len(lines)} bytes of vectors, at most {FILE_BYTES_MAX}")
    (FOLDER / file_name()).write_text(lines)
    readme = FOLDER / "README.md"
    head, _, _ = readme.read_text().partition(README_MARK)
    readme.write_text(head + README_MARK + make_readme(driver, sessions))
    print(f"{len(driver.vectors)} vectors, {len(lines)} bytes, {len(stub_methods())} methods")


async def record_numbers() -> None:
    """Run the calls that show how this SDK numbers, and write their vectors."""
    driver = Driver()
    for wanted in read_calls((FOLDER / "numbers.toml").read_text()):
        await driver.run_session(wanted)
    lines = "".join(
        json.dumps({key: vector[key] for key in ("name", "code", "request", "reply")}) + "\n"
        for vector in driver.vectors.values()
    )
    (FOLDER / f"numbers-{SDK_VERSION}.jsonl").write_text(lines)
    print(f"{len(driver.vectors)} vectors of numbers, {SDK} {SDK_VERSION}")


if __name__ == "__main__":
    wanted_record = record_numbers if sys.argv[1:] == ["--numbers"] else record
    asyncio.run(asyncio.wait_for(wanted_record(), RUN_SECONDS_MAX))
