"""The open producers and consumers of one client, so that closing it closes them."""

from typing import Generic, TypeVar

from headrace.client.calls.names import TopicName, join_topic
from headrace.wire.identifiers import Identifier

C = TypeVar("C")


class Registry(Generic[C]):
    """The producers and consumers that a client has opened and not closed yet."""

    def __init__(self) -> None:
        self._children: dict[int, tuple[C, str]] = {}

    def all(self) -> list[C]:
        """Return the open ones, the oldest first."""
        return [child for child, _ in self._children.values()]

    def add(self, child: C, topic: TopicName = "", group: Identifier | None = None) -> None:
        """Add a producer or consumer.

        Raises:
            ValueError: This client is already a member of that group. The server identifies members
                by their client, so both consumers would get the same messages.
        """
        member = "" if group is None else f"{join_topic(topic)}, group {group!r}"
        if member and any(member == other for _, other in self._children.values()):
            raise ValueError(f"{member}: one client is one member; connect a second client")
        self._children[id(child)] = (child, member)

    def remove(self, child: C) -> None:
        """Remove a producer or consumer that was closed."""
        self._children.pop(id(child), None)
