"""What nodes say to each other, and must not take back (R4, R5).

A promise is of one node and one group: the highest view that it spoke for, the view of its log, and
how far it acknowledged in it. A workload whose groups are deleted and made again under one number
tells them apart by their keys.
"""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from headrace.sim.violation import SimViolationError
from headrace.wire.layout import KIND_OFFSET
from headrace.wire.numbers import FrameKind
from headrace.wire.replica.prepares import PREPARE_OK
from headrace.wire.replica.views import DO_VIEW_CHANGE, START_VIEW_CHANGE, DoViewChangeHeader

K = TypeVar("K")  # what stands for a group


class PromisingReplica(Protocol):
    """What is asked of a group's replica."""

    @property
    def view(self) -> int:
        """The view it is in, or moves to."""

    @property
    def log_view(self) -> int:
        """The view that its log is of."""

    @property
    def whole_op(self) -> int:
        """The last op up to which it has applied every op, or holds its body."""

    @property
    def commit_min(self) -> int:
        """What it has applied."""

    @property
    def is_wiped(self) -> bool:
        """Whether it knows that it has forgotten promises."""


class _Promise:
    __slots__ = ("acked_op", "acked_view", "log_view", "view")

    def __init__(self) -> None:
        self.view = self.log_view = 0
        self.acked_view = self.acked_op = 0


class Promises(Generic[K]):
    """Of all nodes and groups; `key_of` turns group and origin of a frame into a key."""

    def __init__(self, key_of: Callable[[int, int], K]) -> None:
        self._key_of = key_of
        self._promises: dict[tuple[int, K], _Promise] = {}
        self._seen: dict[tuple[int, K], tuple[int, int]] = {}  # view and commit in this life
        self._shortened: dict[int, None] = {}  # nodes whose disk was damaged

    def booted(self, node: int) -> None:
        """Take note of a new life."""
        for place in [place for place in self._seen if place[0] == node]:
            del self._seen[place]

    def damaged(self, node: int) -> None:
        """Take note that a node's disk was damaged: its log may be shorter than it promised."""
        self._shortened[node] = None

    def wiped(self, node: int) -> None:
        """Take note that a node has lost its disk."""
        for place in [place for place in self._promises if place[0] == node]:
            del self._promises[place]

    def lost_tail(self, node: int, key: K) -> None:
        """Take note that a node lawfully lost the unsynced tail of a group."""
        promise = self._promises.get((node, key))
        if promise is not None:
            promise.acked_view = promise.acked_op = 0

    def removed(self, node: int, present: Mapping[K, object]) -> None:
        """Take note of the groups that a running node has no more: deleted, with their promises."""
        for place in [place for place in self._seen if place[0] == node]:
            if place[1] not in present:
                del self._seen[place]
                self._promises.pop(place, None)

    def observe(self, node: int, key: K, replica: PromisingReplica) -> None:
        """Look at a group on a running node: view and commit never go back.

        The first look in a life also checks that the node remembers what it promised.
        """
        place = (node, key)
        seen = self._seen.get(place)
        if seen is None:
            self._check_start(place, replica)
            seen = (0, 0)
        if replica.view < seen[0] or replica.commit_min < seen[1]:
            raise SimViolationError(
                "R4",
                why="went back",
                node=node,
                group=key,
                view=(seen[0], replica.view),
                commit=(seen[1], replica.commit_min),
            )
        self._seen[place] = (replica.view, replica.commit_min)

    def _check_start(self, place: tuple[int, K], replica: PromisingReplica) -> None:
        promise = self._promises.get(place)
        if promise is None:
            return
        if replica.is_wiped and place[0] in self._shortened:
            # It knows that damage took its promises, and takes part only when it has been told.
            del self._promises[place]
            return
        if replica.view < promise.view or replica.log_view < promise.log_view:
            raise SimViolationError(
                "R4",
                why="forgot a view",
                place=place,
                view=(replica.view, replica.log_view),
                promised=(promise.view, promise.log_view),
            )
        self._check_acked(place, replica.log_view, replica.whole_op)

    def sent(self, node: int, frame: bytes, replicas: Mapping[K, PromisingReplica]) -> None:
        """Watch what a node says, as it stood after the step that said it."""
        match frame[KIND_OFFSET]:
            case FrameKind.PREPARE_OK:
                self._sent_prepare_ok(node, frame, replicas)
            case FrameKind.START_VIEW_CHANGE:
                header = START_VIEW_CHANGE.decode(frame)
                place = (node, self._key_of(header.group, header.origin))
                self._promise_view(place, header.view)
            case FrameKind.DO_VIEW_CHANGE:
                self._sent_do_view_change(node, frame)
            case _:
                pass  # It promises nothing.

    def _sent_prepare_ok(
        self, node: int, frame: bytes, replicas: Mapping[K, PromisingReplica]
    ) -> None:
        header = PREPARE_OK.decode(frame)
        place = (node, self._key_of(header.group, header.origin))
        promise = self._promise(place)
        replica = replicas.get(place[1])
        if replica is not None and replica.log_view < header.view:
            raise SimViolationError(
                "R5",
                why="acknowledged in a view whose log it does not have",
                place=place,
                view=header.view,
                log_view=replica.log_view,
            )
        if header.view < promise.view:
            raise SimViolationError("R5", place=place, view=header.view, promised=promise.view)
        if replica is not None and replica.whole_op < header.op:
            raise SimViolationError(
                "R4",
                why="acknowledged an op whose body it does not have",
                place=place,
                op=header.op,
                whole=replica.whole_op,
            )
        promise.view = promise.log_view = header.view
        if header.view > promise.acked_view:
            promise.acked_view, promise.acked_op = header.view, 0
        promise.acked_op = max(promise.acked_op, header.op)

    def _sent_do_view_change(self, node: int, frame: bytes) -> None:
        header = DO_VIEW_CHANGE.decode(frame)
        place = (node, self._key_of(header.group, header.origin))
        promise = self._promise_view(place, header.view)
        if header.log_view < promise.log_view:
            raise SimViolationError(
                "R4",
                why="voted from an older log",
                place=place,
                log_view=header.log_view,
                promised=promise.log_view,
            )
        promise.log_view = header.log_view
        self._check_acked(place, header.log_view, _whole_op(header))

    def _promise_view(self, place: tuple[int, K], view: int) -> _Promise:
        promise = self._promise(place)
        if view < promise.view:
            raise SimViolationError("R4", why="view", place=place, view=view, said=promise.view)
        promise.view = view
        return promise

    def _check_acked(self, place: tuple[int, K], log_view: int, op: int) -> None:
        promise = self._promise(place)
        is_sound = place[0] not in self._shortened
        if is_sound and log_view == promise.acked_view and op < promise.acked_op:
            raise SimViolationError(
                "R4",
                why="lost what it acknowledged",
                place=place,
                view=log_view,
                op=op,
                acknowledged=promise.acked_op,
            )

    def _promise(self, place: tuple[int, K]) -> _Promise:
        promise = self._promises.get(place)
        if promise is None:
            promise = self._promises[place] = _Promise()
        return promise


def _whole_op(vote: DoViewChangeHeader) -> int:
    """Return the last op up to which a vote offers every body."""
    op = vote.commit
    while op < vote.op and vote.present_bitset >> (vote.op - op - 1) & 1:
        op += 1
    return op
