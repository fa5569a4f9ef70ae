"""The producers and consumers of one client, so that its end can close them."""

from typing import Generic, TypeVar

from headrace.client.calls.names import TopicName, join_topic
from headrace.wire.identifiers import Identifier

C = TypeVar("C")


class Registry(Generic[C]):
    """What a client has opened and not closed yet."""

    def __init__(self) -> None:
        self._children: dict[int, tuple[C, str]] = {}

    def all(self) -> list[C]:
        """Give what is open, the oldest first."""
        return [child for child, _ in self._children.values()]

    def add(self, child: C, topic: TopicName = "", group: Identifier | None = None) -> None:
        """Take a child in.

        Raises:
            ValueError: It would be the second member of a group: the server knows members by
                their client, so both would be given the same messages.
        """
        member = "" if group is None else f"{join_topic(topic)}, group {group!r}"
        if member and any(member == other for _, other in self._children.values()):
            raise ValueError(f"{member}: one client is one member; connect a second client")
        self._children[id(child)] = (child, member)

    def remove(self, child: C) -> None:
        """Forget a child that closes."""
        self._children.pop(id(child), None)
