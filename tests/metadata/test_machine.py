"""Equal ops give equal replies, snapshots and hashes, wherever a snapshot is put between them."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.checksum import xxh3_64
from headrace.metadata.lookups import Counts, count
from headrace.metadata.machine import MetadataMachine
from headrace.metadata.state import State, Stream
from headrace.ports.machine import Artifact, StateMachine, StoredPiece
from headrace.ports.segments import SegmentFile
from headrace.wire.errors import Code, CorruptError
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.permissions import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from headrace.wire.replica.artifacts import ArtifactKind
from headrace.wire.requests import RequestHeader
from tests.metadata.stage import HASH, Stage, code_of, topic_options

NAMES = ("a", "b", "c")
USERNAMES = ("alice", "bertha", "iggy")
CLIENTS = (1, 2, 3 << 90)

Step = Callable[[Stage], object]


def test_the_machine_keeps_the_contract() -> None:
    machine: StateMachine = MetadataMachine()
    body = memoryview(b"body")
    assert machine.prepare(RequestHeader(), body, 7) is body
    machine.foresee([])
    assert machine.state_hash() == 0


def test_ops_that_are_not_ours_are_refused() -> None:
    stage = Stage()
    before = stage.machine.state_hash()
    with pytest.raises(CorruptError):
        stage.raw(Operation.SEND_MESSAGES, b"")
    with pytest.raises(CorruptError):
        stage.raw(Operation.CREATE_TOPIC, b"")
    assert stage.machine.state_hash() == before


def test_an_op_is_applied_once_and_in_order() -> None:
    stage = Stage()
    stage.op = 0
    with pytest.raises(CorruptError):
        stage.create_stream("again")


@pytest.mark.parametrize("operation", [128, 133, 139, 141, 146, 148, 66])
def test_bytes_that_cannot_be_read_are_damage(operation: int) -> None:
    stage = Stage()
    before = stage.snapshot()
    with pytest.raises(CorruptError):
        stage.raw(operation, b"\x01")
    assert stage.snapshot() == before


def test_time_is_the_highest_stamp() -> None:
    stage = Stage()
    stage.create_stream("a")
    stamp = stage.machine.timestamp
    assert stamp == stage.state.streams.find("a").created_at  # type: ignore[union-attr]  # it is there
    stage.op += 10
    stage.create_stream("b")
    assert stage.machine.timestamp > stamp


def test_a_rejection_moves_the_hash_and_nothing_else() -> None:
    stage = Stage()
    stage.create_stream("a")
    revision, before = stage.machine.revision, stage.machine.state_hash()
    assert code_of(stage.create_stream, "a") == Code.STREAM_NAME_ALREADY_EXISTS
    assert stage.machine.state_hash() != before
    assert stage.machine.revision == revision
    assert count(stage.state).streams == 1


def test_the_hash_tells_users_clients_and_bodies_apart() -> None:
    def hash_after(user: int, client: int, name: str) -> int:
        stage = Stage()
        stage.user, stage.client = user, client
        code_of(stage.create_stream, name)
        return stage.machine.state_hash()

    asked = [(0, 1, "a"), (7, 1, "a"), (8, 1, "a"), (7, 1 << 64, "a"), (7, 1, "b")]
    seen = [hash_after(*question) for question in asked]
    assert len(dict.fromkeys(seen)) == len(asked)
    assert [hash_after(*question) for question in asked] == seen


def test_the_hash_shows_a_reply_that_differs() -> None:
    left, right = Stage(), Stage()
    # Behind the machine's back, as a bug or a flipped bit would.
    stream_id = right.state.stream_keys.take()
    right.state.streams.add(Stream(id=stream_id, name="a", created_at=0))
    assert left.machine.state_hash() == right.machine.state_hash()
    assert code_of(left.create_stream, "a") != code_of(right.create_stream, "a")
    assert left.machine.state_hash() != right.machine.state_hash()


def full_stage() -> Stage:
    """One of everything, with gaps in the numbers."""
    stage = Stage()
    grants = Permissions(
        everywhere=GlobalPermissions(read_users=True),
        streams=(
            StreamPermissions(
                stream_id=1, topics=(TopicPermissions(topic_id=2, poll_messages=True),)
            ),
        ),
    )
    for name in ("alice", "bertha", "carol"):
        stage.create_user(name, grants, status=UserStatus.INACTIVE)
    stage.delete_user("alice")
    for name in "abc":
        stage.create_stream(name)
    stage.delete_stream("a")
    stage.create_topic("b", "t", 3, topic_options(message_expiry="1 h"))
    stage.create_topic("b", "u", 0)
    stage.create_topic("b", "v", 1)
    stage.delete_topic("b", "t")
    stage.purge_topic("b", "v")
    stage.create_partitions("b", "v", 2)
    for name in ("g", "h"):
        stage.create_group("b", "v", name)
    stage.delete_group("b", "v", "g")
    for client in CLIENTS:
        stage.join(client, "b", "v", "h")
    stage.leave(CLIENTS[0], "b", "v", "h")
    stage.create_token("token", expiry=5)
    return stage


def test_a_snapshot_brings_everything_back() -> None:
    stage = full_stage()
    restored = Stage(with_root=False)
    restored.machine.install(stage.machine.export())
    assert restored.snapshot() == stage.snapshot()
    assert restored.machine.state_hash() == stage.machine.state_hash()
    assert restored.machine.timestamp == stage.machine.timestamp
    assert restored.machine.target().partitions == stage.machine.target().partitions
    assert restored.machine.target().revision == stage.machine.target().revision
    assert restored.state.memberships == stage.state.memberships
    assert count(restored.state) == Counts(
        streams=2, topics=2, partitions=3, consumer_groups=1, users=3
    )
    # What is not in the snapshot is derived alike: the next numbers are the same.
    restored.op = stage.op
    for either in (stage, restored):
        assert either.create_stream("new").id == 0
        assert either.create_topic("b", "new").topic.id == 0
        assert either.create_user("newcomer").user.id == 1
        assert either.create_group("b", "v", "new").group.id == 2
        either.join(9, "b", "v", "h")
    assert restored.snapshot() == stage.snapshot()
    assert restored.machine.state_hash() == stage.machine.state_hash()


def test_an_empty_machine_has_a_snapshot_too() -> None:
    machine = MetadataMachine()
    machine.install(MetadataMachine().checkpoint())
    assert machine.state_hash() == 0


def test_a_damaged_snapshot_changes_nothing() -> None:
    (piece,) = full_stage().machine.checkpoint()
    stage = Stage()
    stage.create_stream("kept")
    before = stage.snapshot()
    for position in range(len(piece.data)):
        damaged = bytearray(piece.data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptError):
            stage.machine.install((Artifact(piece.kind, piece.frontier, bytes(damaged)),))
    for length in range(0, len(piece.data), 7):
        with pytest.raises(CorruptError):
            stage.machine.install((Artifact(piece.kind, piece.frontier, piece.data[:length]),))
    assert stage.snapshot() == before


@settings(max_examples=25)
@given(st.data())
def test_a_snapshot_that_nobody_wrote_is_refused_or_whole(data: st.DataObject) -> None:
    """Wrong bytes under a right checksum: never another error, never a broken state."""
    (piece,) = full_stage().machine.checkpoint()
    changed = bytearray(piece.data[:-8])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(6, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    sealed = bytes(changed) + xxh3_64(changed).to_bytes(8, "little")
    machine = MetadataMachine()
    op = int.from_bytes(sealed[6:14], "little")
    try:
        machine.install((Artifact(piece.kind, op, sealed),))
    except CorruptError:
        assert machine.state_hash() == 0
        assert len(machine.state.users) == 0
    else:
        check_invariants(machine.state)


def test_another_version_is_named() -> None:
    (piece,) = Stage().machine.checkpoint()
    data = piece.data[:4] + (9).to_bytes(2, "little") + piece.data[6:]
    with pytest.raises(CorruptError, match="version 9"):
        MetadataMachine().install((Artifact(piece.kind, piece.frontier, data),))


def test_pieces_that_are_no_snapshot() -> None:
    (piece,) = Stage().machine.checkpoint()
    stored = StoredPiece(
        ArtifactKind.METADATA_SNAPSHOT, piece.frontier, 1, 1, SegmentFile(0, 0, 0, 0), 0
    )
    machine = MetadataMachine()
    for pieces in (
        (),
        (piece, piece),
        (Artifact(ArtifactKind.SEGMENT_LOG, piece.frontier, piece.data),),
        (Artifact(piece.kind, piece.frontier + 1, piece.data),),
        (stored,),
    ):
        with pytest.raises(CorruptError):
            machine.install(pieces)


# Any ops in any order, on a machine that has something to lose.


def populated() -> Stage:
    stage = Stage()
    for username in USERNAMES[:2]:
        stage.create_user(username)
    for stream in NAMES[:2]:
        stage.create_stream(stream)
        for topic in NAMES[:2]:
            stage.create_topic(stream, topic, 3)
            for group in NAMES[:2]:
                stage.create_group(stream, topic, group)
                stage.join(CLIENTS[0], stream, topic, group)
    return stage


name = st.sampled_from(NAMES)
number = st.integers(0, 2)
ident = st.one_of(name, number)
client = st.sampled_from(CLIENTS)
partitions_count = st.integers(0, 3)


def asking(method: str, **arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    """Give steps that call a method of the stage, and note its code."""
    return st.fixed_dictionaries(arguments).map(
        lambda chosen: lambda stage: code_of(getattr(stage, method), **chosen)
    )


def gone(operation: Operation) -> st.SearchStrategy[Step]:
    return client.map(lambda who: lambda stage: stage.raw(operation, b"", client=who))


def acting_as(user: int) -> Step:
    def step(stage: Stage) -> None:
        stage.user = user

    return step


permissions = st.builds(
    lambda flags, stream, topic: Permissions(
        everywhere=GlobalPermissions(manage_topics=flags[0], manage_users=flags[1]),
        streams=(
            StreamPermissions(
                stream_id=stream,
                manage_stream=flags[2],
                topics=(TopicPermissions(topic_id=topic, manage_topic=flags[3]),),
            ),
        ),
    ),
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    number,
    number,
)
username = st.sampled_from(USERNAMES)

steps: st.SearchStrategy[Step] = st.one_of(
    asking("create_stream", name=name),
    asking("update_stream", stream=ident, name=name),
    asking("delete_stream", stream=ident),
    asking("purge_stream", stream=ident),
    asking("create_topic", stream=ident, name=name, partitions=partitions_count),
    asking("create_topic", stream=ident, name=name, partitions=partitions_count),
    asking(
        "update_topic",
        stream=ident,
        topic=ident,
        name=name,
        options=st.sampled_from(((), topic_options(message_expiry="2 h"))),
    ),
    asking("delete_topic", stream=ident, topic=ident),
    asking("purge_topic", stream=ident, topic=ident),
    *[asking("create_partitions", stream=ident, topic=ident, count=partitions_count)] * 2,
    *[asking("delete_partitions", stream=ident, topic=ident, count=partitions_count)] * 2,
    asking("create_group", stream=ident, topic=ident, name=name),
    asking("create_group", stream=ident, topic=ident, name=name),
    asking("delete_group", stream=ident, topic=ident, group=ident),
    *[asking("join", client=client, stream=ident, topic=ident, group=ident)] * 6,
    *[asking("leave", client=client, stream=ident, topic=ident, group=ident)] * 3,
    asking("remove_member", client=client),
    gone(Operation.DISCONNECT),
    gone(Operation.LOGOUT),
    asking("create_user", name=username, permissions=st.one_of(st.none(), permissions)),
    asking("update_user", user=st.one_of(username, number), name=username),
    asking("delete_user", user=st.one_of(username, number)),
    asking("update_permissions", user=st.one_of(username, number), permissions=permissions),
    asking(
        "change_password",
        user=number,
        verified=st.just(HASH),
        new=st.sampled_from((HASH, HASH + b"x")),
    ),
    asking("create_token", name=st.sampled_from(("token", "other")), expiry=st.integers(0, 9)),
    asking("delete_token", name=st.sampled_from(("token", "other"))),
    st.sampled_from((0, 0, 0, 1, 2)).map(acting_as),
)


@pytest.mark.slow  # whole runs: about 2 s of the check share
@settings(max_examples=300)
@given(st.lists(steps, min_size=5, max_size=60), st.data())
def test_a_snapshot_anywhere_makes_no_difference(run: list[Step], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(run)))
    straight, broken = populated(), populated()
    answers = [step(straight) for step in run]
    first = [step(broken) for step in run[:cut]]
    pieces = broken.machine.export()
    broken.machine = MetadataMachine()
    broken.machine.install(pieces)
    assert broken.machine.export() == pieces
    assert first + [step(broken) for step in run[cut:]] == answers
    assert broken.snapshot() == straight.snapshot()
    assert broken.machine.state_hash() == straight.machine.state_hash()
    assert broken.machine.target().partitions == straight.machine.target().partitions
    assert broken.state.memberships == straight.state.memberships
    check_invariants(straight.state)


@settings(max_examples=15)
@given(st.lists(steps, max_size=25))
def test_two_machines_agree_at_every_op(run: list[Step]) -> None:
    left, right = populated(), populated()
    for step in run:
        assert step(left) == step(right)
        assert left.machine.state_hash() == right.machine.state_hash()
        check_invariants(left.state)
    assert left.snapshot() == right.snapshot()


def check_invariants(state: State) -> None:
    """What must hold of any state."""
    memberships: dict[int, list[tuple[int, int, int]]] = {}
    revisions = []
    for stream in state.streams:
        for topic in stream.topics:
            revisions += [part.created_revision for part in topic.partitions]
            for group in topic.groups:
                assert group.id < topic.next_group_id
                dealt = sorted(group.roster.owners)
                assert dealt == (list(range(len(topic.partitions))) if group.roster.members else [])
                for member in group.roster.members:
                    key = (stream.id, topic.id, group.id)
                    memberships.setdefault(member.client, []).append(key)
    assert all(1 <= revision <= state.revision for revision in revisions)
    assert {who: sorted(keys) for who, keys in state.memberships.items()} == memberships
    owned = {token.token_hash: user.id for user in state.users for token in user.tokens.values()}
    assert {token: user.id for token, user in state.token_owners.items()} == owned
    root = state.users.find(0)
    assert root is not None
    assert root.status == UserStatus.ACTIVE
