"""Simulated clients: one request in flight, sent again with its number until it is answered.

A client connects to whichever node it wants to ask and logs in there with its one client id, so
that a request is known by its number at every node (P4). Nobody tells it who leads: a node that
does not answers 58, and the client asks the next one. Who gives up waiting, or asks again what was
answered, does so on another connection (O4.2).

Some clients do not number: they send all that goes to partitions under the number that their next
metadata request takes, as SDKs of other languages do. They have one connection at a time, take
another number on the next, and do not repeat a change whose connection was lost.
"""

from collections.abc import Callable

import msgspec

from headrace.base.limits import HEADER_BYTES
from headrace.base.prng import Prng
from headrace.sim.agenda import Agenda, draw_delay
from headrace.sim.links import Links
from headrace.sim.nodes.actions import STREAM, Action, Actions, Board, WorkloadOptions
from headrace.sim.nodes.checkers import Checkers
from headrace.sim.nodes.history import Reign
from headrace.sim.nodes.presence import Place
from headrace.sim.nodes.repeats import content_of
from headrace.sim.violation import SimViolationError
from headrace.wire.commands.messages import POLL_MESSAGES, SEND_MESSAGES, StoredOffset
from headrace.wire.commands.session import (
    LOGIN_PASSWORD,
    ClientVersion,
    PasswordLogin,
    Register,
    Registered,
)
from headrace.wire.errors import Code, RefusedError
from headrace.wire.evictions import EvictedError, EvictionReason
from headrace.wire.numbers import ConsumerKind, Operation, is_metadata, is_partition
from headrace.wire.replies import REPLY, read_answer
from headrace.wire.requests import encode_request
from headrace.wire.versions import PROTOCOL_PACKED

ROOT = ("iggy", b"iggy")

_READ_NUMBERS = 1 << 40  # requests that are not ordered have numbers of their own
_RETRIED = (
    Code.TRANSIENT_NOT_COMMITTED,
    Code.TRANSIENT_NOT_ACCEPTED,
    Code.CANNOT_APPEND_MESSAGE,
)
_RELOGIN = (
    EvictionReason.NO_SESSION,
    EvictionReason.SESSION_TOO_LOW,
    EvictionReason.STALE_CLIENT,
    EvictionReason.SESSION_ERROR,
)
# What is not found, if it is a partition that was named: it, its topic or its stream.
_MISSING = (
    Code.STREAM_ID_NOT_FOUND,
    Code.STREAM_NAME_NOT_FOUND,
    Code.TOPIC_ID_NOT_FOUND,
    Code.TOPIC_NAME_NOT_FOUND,
    Code.PARTITION_NOT_FOUND,
    Code.RESOURCE_NOT_FOUND,
)
_OLD_SENDS_MAX = 8
_REFUSALS_MAX = 20  # a client that does not number then tries its luck elsewhere


class Asked:
    """What a client waits for."""

    __slots__ = (
        "action",
        "began",
        "floors",
        "invoked",
        "is_new",
        "is_replay",
        "node",
        "number",
        "open_count",
        "place",
        "refusals",
        "since",
        "told_before",
        "tries",
    )

    def __init__(self, action: Action, number: int, node: int | None, *, is_replay: bool) -> None:
        self.action = action
        self.invoked = 0  # the moment at which it was first asked
        self.began = 0  # and the time
        self.number = number
        self.node = node  # the one node that must answer, if that matters
        self.is_replay = is_replay
        self.tries = 0
        self.refusals = 0
        self.is_new = False  # whether its number was spent wherever it was sent
        self.told_before = 0  # the newest op of the metadata that some client knew of by then
        self.place: Place | None = None  # where it was sent last, and
        self.since = 0  # the newest op that somebody had been told of there
        self.open_count = 0  # of tries that were not told what came of them, and may be new
        self.floors: dict[int, tuple[int, Reign]] = {}  # by node: in which life it served what


class _Session:
    """A connection to a node, and the session that it holds there."""

    __slots__ = ("connection", "number", "place", "spent")

    def __init__(self, connection: int, place: Place) -> None:
        self.connection = connection
        self.place = place
        self.spent: dict[int, None] = {}  # numbers under which a success was read
        self.number = 0  # 0: not logged in


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """What clients share: the world as they see it."""

    agenda: Agenda
    links: Links
    checkers: Checkers
    board: Board
    is_electing: Callable[[], bool]  # whether some group is without a primary
    # Whether a node may say that it cannot read a partition that it was asked for since a time.
    is_unreadable: Callable[[int, str, int], bool]
    reign_of: Callable[[int, str], tuple[int, Reign] | None]  # a partition at a node, and its life
    place_of: Callable[[int, int], Place]  # where a connection to a node lives now
    life_of: Callable[[int], int]
    shard_count_of: Callable[[int], int]


class Client:
    """One client; see the module."""

    def __init__(self, index: int, prng: Prng, targets: tuple[int, ...], joined: Joined) -> None:
        options = joined.board.options
        self.index = index
        self.remaining = options.requests // options.client_count + 1
        self.outstanding: Asked | None = None
        self.script: list[tuple[Action, int]] = []  # what to ask of which node, before all else
        self.targets = targets
        self._options: WorkloadOptions = options
        self._is_numbering = index < options.client_count - options.unnumbered
        self._prng = prng
        self._joined = joined
        self._actions = Actions(joined.board, prng.fork("actions"), index + 1)
        self._ids = 0
        self._client = self._draw_id()
        self._number = 0
        self._sessions: dict[int, _Session] = {}
        self._asked_node = targets[0]
        self._hints: dict[str, int] = {}  # who answered last, by what was asked for
        self._old: list[tuple[Action, int, int]] = []  # sends of the past, with their client
        joined.agenda.after(draw_delay(prng, options.think_mean), self._think, None)

    @property
    def is_done(self) -> bool:
        """Whether everything asked for was answered."""
        return self.outstanding is None and self.remaining == 0 and not self.script

    @property
    def waits_for(self) -> str:
        """What it waits for, in a few words."""
        asked = self.outstanding
        return "its turn" if asked is None else f"{asked.action.kind} {asked.action.name}"

    def grant(self, requests: int) -> None:
        """Let the client ask so often from now on, whatever it still meant to do."""
        if self.is_done:
            self._joined.agenda.after(1, self._think, None)
        self.remaining = requests

    def follow(self, script: list[tuple[Action, int]]) -> None:
        """Have the client ask these things of these nodes next."""
        if self.is_done:
            self._joined.agenda.after(1, self._think, None)
        self.script += script

    def _draw_id(self) -> int:
        self._ids += 1
        return (self.index + 1) << 64 | self._ids

    def _count(self, event: str) -> None:
        self._joined.checkers.count(event)

    # Asking

    def _think(self, _: None) -> None:
        if self.outstanding is not None:
            return
        if self.script:
            action, node = self.script.pop(0)
            self._begin(action, node)
            return
        if self.remaining == 0:
            return
        self.remaining -= 1
        draw = self._prng.below(100)
        if draw < self._options.leave:
            self._part()
        elif self._old and draw < self._options.leave + self._options.replay:
            action, number, client = self._prng.choice(self._old)
            if not self._is_numbering:
                self._count("client.sent_equal")
                self._begin(action, None)
                return
            if client == self._client:
                self._count("client.replayed")
                self._close_all()
                self.outstanding = Asked(action, number, None, is_replay=True)
                self._try(self.outstanding)
                return
        self._begin(self._actions.draw(), None)

    def _part(self) -> None:
        """Drop a connection, or forget who one was."""
        self._close_all()
        self._count("client.parted")
        if self._prng.chance(1, 4):
            self._client = self._draw_id()

    def _close_all(self) -> None:
        for session in self._sessions.values():
            self._joined.links.close(session.connection)
        self._sessions.clear()

    def _begin(self, action: Action, node: int | None) -> None:
        if action.command.operation == Operation.NON_REPLICATED:
            self._ids += 1
            number = _READ_NUMBERS + self._ids
        else:
            number = self._take_number(action)
        self.outstanding = asked = Asked(action, number, node, is_replay=False)
        asked.invoked = self._joined.checkers.witness.asked(action)
        asked.began = self._joined.agenda.now
        asked.told_before = self._joined.checkers.presence.newest_told
        if action.kind == "send":
            self._joined.checkers.sent(self._client, number, action.batch, asked.began)
        self._try(asked)

    def _take_number(self, action: Action) -> int:
        """Return the number of a change; it is raised, or stays for the next one."""
        if not self._is_numbering and not self._sessions:
            self._number += 1
        number = self._number + 1
        if self._is_numbering or is_metadata(action.command.operation):
            self._number = number
        return number

    def _choose(self, asked: Asked) -> int:
        if asked.node is not None:
            return asked.node
        is_read = asked.action.command.operation == Operation.NON_REPLICATED
        if self._sessions and not self._is_numbering and not (is_read and asked.refusals):
            return next(iter(self._sessions))
        if self._options.registers and is_read and self._prng.chance(1, 3):
            return self._prng.choice(self.targets)  # Maybe one that has led.
        hint = self._hints.get(_route(asked.action))
        if hint in self.targets and asked.tries == 1 and not self._prng.chance(1, 16):
            return hint
        return self._prng.choice(self.targets)

    def _try(self, asked: Asked) -> None:
        asked.tries += 1
        node = self._asked_node = self._choose(asked)
        self._note_floor(asked, node)
        session = self._sessions.get(node)
        if session is None:
            if not self._is_numbering and asked.number >= _READ_NUMBERS:
                self._close_all()
                self._number += 1
            connection = self._joined.links.open(node, self)
            place = self._joined.place_of(node, connection)
            session = self._sessions[node] = _Session(connection, place)
        if session.number:
            self._send(session, asked)
        else:
            self._login(session)
        self._joined.agenda.after(self._options.timeout, self._time_out, (asked, asked.tries))

    def _note_floor(self, asked: Asked, node: int) -> None:
        """Remember what a node served when it was first asked in this life."""
        known = asked.floors.get(node)
        if asked.action.kind == "poll":
            found = self._joined.reign_of(node, asked.action.name)
            if found is not None and (known is None or known[0] != found[0]):
                asked.floors[node] = found

    def _floor_of(self, asked: Asked, node: int) -> Reign | None:
        """Return what a node served when it was asked, if it still lives as it did then."""
        known, found = asked.floors.get(node), self._joined.reign_of(node, asked.action.name)
        return known[1] if known and found and known[0] == found[0] else None

    def _login(self, session: _Session) -> None:
        version = ClientVersion(PROTOCOL_PACKED, "simulator", "1.0.0")
        login = Register(version, password=PasswordLogin(*ROOT))
        body = LOGIN_PASSWORD.encode_request(login)
        header = encode_request(
            Operation.REGISTER, body, client=self._client, session=0, request=0, code=0
        )
        self._joined.links.send(session.connection, header + body)

    def _send(self, session: _Session, asked: Asked) -> None:
        command, body = asked.action.command, asked.action.body
        self._note_place(session, asked)
        if is_partition(command.operation):
            self._note_sent(session, asked)
        header = encode_request(
            command.operation,
            body,
            client=self._client,
            session=session.number,
            request=asked.number,
            code=command.code,
        )
        self._joined.links.send(session.connection, header + body)

    def _note_place(self, session: _Session, asked: Asked) -> None:
        """Remember where a request goes, and what was told of the metadata there."""
        place, checkers = session.place, self._joined.checkers
        asked.place = place if self._is_there(place) else None
        asked.since = checkers.presence.told_at(place)
        if asked.action.kind == "send":
            shard_count = self._joined.shard_count_of(place.node)
            checkers.choices.asked(self._client, asked.number, place.shard, shard_count)

    def _is_there(self, place: Place | None) -> bool:
        """Whether a node still lives as it did when a connection was opened."""
        return place is not None and self._joined.life_of(place.node) == place.life

    def _since_of(self, asked: Asked) -> int | None:
        """Return what was told where a request was answered, when it was sent; none if it died."""
        is_known = self._is_there(asked.place) and not asked.is_replay
        return asked.since if is_known else None

    def _note_sent(self, session: _Session, asked: Asked) -> None:
        action = asked.action
        content = content_of(action.command.operation, action.batch, action.offset)
        is_spent = asked.number in session.spent
        asked.is_new = is_spent and (asked.is_new or asked.tries == 1)
        self._joined.checkers.repeats.sent(self._client, asked.number, content, is_spent=is_spent)

    def _time_out(self, argument: tuple[Asked, int]) -> None:
        asked, tries = argument
        if self.outstanding is asked and asked.tries == tries:
            self._count("client.timed_out")
            session = self._sessions.pop(self._asked_node, None)
            if session is not None:
                self._joined.links.close(session.connection)
            self._go_on(asked)

    def _go_on(self, asked: Asked) -> None:
        """Ask again after a connection was lost, or leave open what came of it."""
        if self._is_numbering or asked.action.command.operation == Operation.NON_REPLICATED:
            self._try(asked)
            return
        self._count("client.gave_up")
        self._close_all()
        asked.open_count += 1
        self._leave_open(asked)
        self._end(asked)

    def _leave_open(self, asked: Asked) -> None:
        """Take note of tries that may have been carried out, or may be yet."""
        for _ in range(asked.open_count):
            self._joined.checkers.witness.unanswered(asked.action, asked.invoked)

    def _retry_soon(self) -> None:
        asked = self.outstanding
        if asked is not None:
            asked.tries += 1  # The time-out of this try is void.
            delay = draw_delay(self._prng, 20_000)
            self._joined.agenda.after(delay, self._retry, (asked, asked.tries))

    def _retry(self, argument: tuple[Asked, int]) -> None:
        asked, tries = argument
        if self.outstanding is not asked or asked.tries != tries:
            return
        is_lost = asked.refusals > _REFUSALS_MAX or not self._sessions
        if is_lost and not self._is_numbering:
            self._go_on(asked)
        else:
            self._try(asked)

    # Answers

    def on_closed(self, connection: int) -> None:
        """Ask again if the connection was the one that the answer would have come by."""
        node = self._node_of(connection)
        if node is not None:
            del self._sessions[node]
            if node == self._asked_node:
                self._retry_soon()

    def _node_of(self, connection: int) -> int | None:
        for node, session in self._sessions.items():
            if session.connection == connection:
                return node
        return None

    def on_frame(self, connection: int, frame: bytes) -> None:
        """Take what a node says."""
        node = self._node_of(connection)
        if node is None:
            return
        session = self._sessions[node]
        try:
            payload = read_answer(frame)
        except EvictedError as evicted:
            self._evicted(node, session, evicted)
            return
        except RefusedError as refused:
            self._refused(node, session, frame, refused)
            return
        header = REPLY.decode(frame)
        if header.client != self._client:
            return
        asked = self.outstanding
        if header.operation == Operation.REGISTER:
            self._registered(node, session, LOGIN_PASSWORD.decode_reply(payload))
        elif asked is not None and header.request == asked.number:
            self._note_spent(session, asked)
            self._accepted(node, asked, frame, payload)

    def _note_spent(self, session: _Session, asked: Asked) -> None:
        if is_partition(asked.action.command.operation):
            session.spent[asked.number] = None

    def _registered(self, node: int, session: _Session, registered: Registered) -> None:
        is_new = session.number == 0
        session.number = registered.session
        asked = self.outstanding
        if is_new and asked is not None and node == self._asked_node:
            self._send(session, asked)

    def _evicted(self, node: int, session: _Session, evicted: EvictedError) -> None:
        if evicted.client != self._client:
            return
        if evicted.reason not in _RELOGIN:
            raise SimViolationError("R6", why="evicted", reason=evicted.reason, node=node)
        self._count("client.evicted")
        session.number = 0
        if not self._is_numbering:
            self._close_all()
        if node == self._asked_node:
            self._retry_soon()

    def _refused(self, node: int, session: _Session, frame: bytes, refused: RefusedError) -> None:
        header = REPLY.decode(frame)
        asked = self.outstanding
        if header.client != self._client or asked is None:
            return
        is_login = header.operation == Operation.REGISTER
        if not is_login and header.request != asked.number:
            return
        if node != self._asked_node:
            return
        code = refused.code
        if not is_login and not header.status:
            self._note_spent(session, asked)
        if code in _RETRIED:
            asked.refusals += 1
            is_open = not is_login and code == Code.TRANSIENT_NOT_COMMITTED
            is_unnumbered = not self._is_numbering and is_partition(asked.action.command.operation)
            asked.open_count += is_open and is_unnumbered
            self._count(f"client.refused_{int(code)}")
            self._retry_soon()
        elif is_login:
            raise SimViolationError("R6", why="login refused", status=code, node=node)
        elif code in asked.action.codes or self._is_lawful(node, asked, code):
            self._count(f"client.told_{int(code)}")
            self._note_refusal(asked.action, code)
            if not asked.is_replay:
                self._witness_refusal(asked, code)
            self._leave_open(asked)
            self._end(asked)
        else:
            raise SimViolationError(
                "R6",
                why="an answer that nobody may get",
                status=code,
                action=asked.action.kind,
                name=asked.action.name,
                request=asked.number,
                node=node,
            )

    def _is_lawful(self, node: int, asked: Asked, code: Code) -> bool:
        if code == Code.CANNOT_READ_MESSAGE and asked.action.kind == "poll":
            if not self._joined.is_unreadable(node, asked.action.name, asked.began):
                return False
            self._count("client.unreadable")
            return True
        return asked.is_replay and code in (Code.REQUEST_ALREADY_APPLIED, Code.INVALID_FORMAT)

    def _witness_refusal(self, asked: Asked, code: Code) -> None:
        witness = self._joined.checkers.witness
        if code == Code.CONSUMER_GROUP_PARTITION_NOT_OWNED and asked.tries > 1:
            # The partition was dealt to another meanwhile; who knows that may not know the log.
            witness.unanswered(asked.action, asked.invoked)
        else:
            witness.refused(asked.action, asked.invoked, code)
        if code in _MISSING and _needs_partition_alone(asked.action):
            self._joined.checkers.presence.check_missed(asked.action.name, asked.told_before)

    def _note_refusal(self, action: Action, code: Code) -> None:
        board = self._joined.board
        if code in (Code.TOPIC_NAME_NOT_FOUND, Code.TOPIC_ID_NOT_FOUND):
            board.topics.pop(action.topic, None)
            board.groups.pop(action.topic, None)
        elif code == Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS:
            board.groups[action.topic] = None
        elif code in (Code.CONSUMER_GROUP_ID_NOT_FOUND, Code.CONSUMER_GROUP_NAME_NOT_FOUND):
            board.groups.pop(action.topic, None)
        elif code == Code.STREAM_NAME_ALREADY_EXISTS:
            board.has_stream |= action.named == STREAM
        elif code == Code.TOPIC_NAME_ALREADY_EXISTS:
            board.topics.setdefault(action.topic, 1)
        elif code == Code.PARTITION_NOT_FOUND and action.topic in board.topics:
            board.topics[action.topic] = 1
        elif code == Code.RESOURCE_NOT_FOUND and action.topic in board.topics:
            self._note_missing(action)

    def _note_missing(self, action: Action) -> None:
        """Take note that a partition, its topic, or the group of an offset is not there."""
        board = self._joined.board
        is_group = action.consumer is not None and action.consumer.kind == ConsumerKind.GROUP
        if is_group and action.topic in board.groups:
            del board.groups[action.topic]
        elif board.topics[action.topic] > 1:
            board.topics[action.topic] = 1
        else:
            del board.topics[action.topic]
            board.groups.pop(action.topic, None)

    def _accepted(self, node: int, asked: Asked, frame: bytes, payload: memoryview) -> None:
        action, checkers = asked.action, self._joined.checkers
        self._hints[_route(action)] = node
        self._count("client.acknowledged")
        self._count(f"client.did_{action.kind}")
        operation = action.command.operation
        if is_metadata(operation):
            header = REPLY.decode(frame)
            checkers.answered(header.op, self._client, asked.number, frame[HEADER_BYTES:])
            place = asked.place if self._is_there(asked.place) else None
            checkers.presence.told(place, header.op)
            if action.kind == "purge_topic":
                checkers.purges.check(header.op, action.topic, checkers.presence)
            if len(self.targets) == 1:
                # In a cluster who leads the partition may hear of it later than who asked.
                checkers.ownership.confirmed(header.op, checkers.witness.registers.moment())
        if action.kind == "send":
            self._confirmed(asked, payload)
        elif action.kind == "poll":
            told = POLL_MESSAGES.decode_reply(payload)
            floor = self._floor_of(asked, node)
            span = checkers.polled(node, action.name, told, strategy=action.strategy, floor=floor)
            since = self._since_of(asked)
            if span is not None and since is not None:
                checkers.presence.check_met(action.name, since)
            if span is not None:
                self._joined.board.ends[action.name] = told.current_offset + 1
            if action.audited is not None:
                checkers.audited(node, *action.audited, span)
            if span is not None:
                self._served(asked, span[0])
        else:
            self._told(node, asked, payload)
        self._note_done(action)
        self._leave_open(asked)
        self._end(asked)

    def _served(self, asked: Asked, first: int) -> None:
        """Have a poll of a group judged: whom it was for, and where it began.

        A single consumer may be served by any node, and may be told what was stored long ago.
        """
        action, checkers = asked.action, self._joined.checkers
        if action.consumer is None or action.consumer.kind != ConsumerKind.GROUP:
            return
        assert action.partition is not None
        checkers.ownership.served(
            action.topic,
            action.partition,
            self._client,
            invoked=asked.invoked,
            answered=checkers.witness.registers.moment(),
        )
        if action.is_next:
            is_start = checkers.is_start(action.name, first)
            checkers.witness.served(action, asked.invoked, first, is_start=is_start)

    def _told(self, node: int, asked: Asked, payload: memoryview) -> None:
        action, checkers = asked.action, self._joined.checkers
        reply = action.command.decode_reply(payload)
        is_read = action.command.operation == Operation.NON_REPLICATED
        if self._options.registers and is_read and self._joined.is_electing():
            self._count("register.read_in_view_change")
        consumer = action.consumer
        if isinstance(reply, StoredOffset) and consumer and isinstance(consumer.id, int):
            checkers.offset_told(action.name, consumer.kind, consumer.id, reply, node)
        checkers.witness.accepted(action, asked.invoked, reply)

    def _confirmed(self, asked: Asked, payload: memoryview) -> None:
        (told,) = SEND_MESSAGES.decode_reply(payload)
        action = asked.action
        now = self._joined.agenda.now
        self._joined.checkers.confirmed(
            self._client,
            asked.number,
            told,
            now,
            is_new=asked.is_new,
            since=self._since_of(asked),
        )
        name = f"{action.topic}/{told.partition_id}"
        ends = self._joined.board.ends
        ends[name] = max(ends.get(name, 0), told.base_offset + 1)
        if not asked.is_replay:
            self._old.append((action, asked.number, self._client))
            del self._old[:-_OLD_SENDS_MAX]

    def _note_done(self, action: Action) -> None:
        board = self._joined.board
        match action.kind:
            case "create_stream":
                board.has_stream |= action.named == STREAM
            case "create_topic":
                board.topics[action.topic] = action.count
            case "delete_topic":
                board.topics.pop(action.topic, None)
                board.groups.pop(action.topic, None)
            case "create_group":
                board.groups[action.topic] = None
            case "delete_group":
                board.groups.pop(action.topic, None)
            case "add_partitions":
                board.topics[action.topic] = board.topics.get(action.topic, 0) + 1
            case "drop_partitions":
                board.topics[action.topic] = max(1, board.topics.get(action.topic, 2) - 1)
            case _:
                pass  # It changes nothing that others must know of.

    def _end(self, asked: Asked) -> None:
        assert self.outstanding is asked
        self.outstanding = None
        delay = draw_delay(self._prng, self._options.think_mean)
        self._joined.agenda.after(1 if self.script else delay, self._think, None)


def _needs_partition_alone(action: Action) -> bool:
    """Whether a request names a partition, and nothing else that might be missing."""
    is_of_group = action.consumer is not None and action.consumer.kind == ConsumerKind.GROUP
    is_of_partition = action.kind in ("send", "poll", "store_offset", "get_offset")
    return is_of_partition and action.partition is not None and not is_of_group


def _route(action: Action) -> str:
    """Return what decides who can answer: the metadata group, or a partition's."""
    if action.kind in ("send", "store_offset", "delete_offset"):
        return action.name
    return "" if action.kind != "poll" else "any"
