"""What reads are answered from: the committed state, and statistics that are handed in.

Nothing here asks whether the user may: `access.check_access` does, before. What does not exist is
`None`, and an empty body on the wire; only the parents of consumer groups are named when they are
missing.

Flow: reply.
"""

import msgspec

from headrace.groups.roster import pollable
from headrace.metadata import resolve
from headrace.metadata.describe import (
    StatsOf,
    describe_group,
    describe_stream,
    describe_topic,
    describe_user,
    detail_group,
    detail_topic,
    detail_user,
)
from headrace.metadata.state import State
from headrace.wire.commands.clients import Membership
from headrace.wire.commands.groups import (
    Assignment,
    GetGroup,
    GetGroups,
    Group,
    GroupDetails,
    SyncGroup,
)
from headrace.wire.commands.streams import Stream, StreamDetails
from headrace.wire.commands.tokens import Token
from headrace.wire.commands.topics import GetTopic, Topic, TopicDetails
from headrace.wire.commands.users import User, UserDetails
from headrace.wire.identifiers import Identifier


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of each."""

    streams: int
    topics: int
    partitions: int
    consumer_groups: int
    users: int


def get_stream(state: State, identifier: Identifier, stats_of: StatsOf) -> StreamDetails | None:
    """Return a stream with the records of its topics."""
    stream = state.streams.find(identifier)
    if stream is None:
        return None
    topics = [describe_topic(topic, stats_of) for topic in stream.topics]
    return StreamDetails(describe_stream(stream, stats_of), tuple(topics))


def get_streams(state: State, stats_of: StatsOf) -> tuple[Stream, ...]:
    """Return the records of all streams."""
    return tuple([describe_stream(stream, stats_of) for stream in state.streams])


def get_topic(state: State, request: GetTopic, stats_of: StatsOf) -> TopicDetails | None:
    """Return a topic with its partitions; nothing if it or its stream does not exist."""
    stream = state.streams.find(request.stream)
    topic = None if stream is None else stream.topics.find(request.topic)
    return None if topic is None else detail_topic(topic, stats_of)


def get_topics(state: State, stream: Identifier, stats_of: StatsOf) -> tuple[Topic, ...]:
    """Return the records of a stream's topics; none if the stream does not exist."""
    found = state.streams.find(stream)
    if found is None:
        return ()
    return tuple([describe_topic(topic, stats_of) for topic in found.topics])


def get_group(state: State, request: GetGroup) -> GroupDetails | None:
    """Return a consumer group with its members.

    Raises:
        RefusedError: There is no such stream or topic.
    """
    topic = resolve.route(state, request.stream, request.topic)
    group = topic.groups.find(request.group)
    return None if group is None else detail_group(topic, group)


def get_groups(state: State, request: GetGroups) -> tuple[Group, ...]:
    """Return the records of a topic's consumer groups.

    Raises:
        RefusedError: There is no such stream or topic.
    """
    topic = resolve.route(state, request.stream, request.topic)
    return tuple([describe_group(topic, group) for group in topic.groups])


def sync_group(state: State, request: SyncGroup, client: int) -> Assignment | None:
    """Return what a member may poll; nothing if the client is no member.

    Of a group that does not exist nobody is a member, nor where its stream or topic does not: to
    clients a refusal is final, and nothing means that they create the group and join again.
    """
    stream = state.streams.find(request.stream)
    topic = None if stream is None else stream.topics.find(request.topic)
    group = None if topic is None else topic.groups.find(request.group)
    if group is None:
        return None
    roster = group.roster
    partitions = pollable(roster, client)
    return None if partitions is None else Assignment(roster.generation, partitions)


def memberships_of(state: State, client: int) -> tuple[Membership, ...]:
    """Return the consumer groups that a client belongs to."""
    return tuple([Membership(*key) for key in sorted(state.memberships.get(client, ()))])


def get_user(state: State, identifier: Identifier) -> UserDetails | None:
    """Return a user with its permissions."""
    user = state.users.find(identifier)
    return None if user is None else detail_user(user)


def get_users(state: State) -> tuple[User, ...]:
    """Return the records of all users."""
    return tuple([describe_user(user) for user in state.users])


def get_tokens(state: State, user_id: int) -> tuple[Token, ...]:
    """Return a user's own tokens, in order of their names."""
    user = state.users.find(user_id)
    if user is None:
        return ()
    return tuple([Token(name, user.tokens[name].expires_at) for name in sorted(user.tokens)])


def count(state: State) -> Counts:
    """Count what there is, for statistics."""
    topics = [topic for stream in state.streams for topic in stream.topics]
    return Counts(
        streams=len(state.streams),
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics),
        consumer_groups=sum(len(topic.groups) for topic in topics),
        users=len(state.users),
    )
