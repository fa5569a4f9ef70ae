"""How a part says that what it was asked for is served by another shard."""

from headrace.base.ids import METADATA_GROUP, GroupId
from headrace.base.placement import METADATA_SHARD


class ElsewhereError(Exception):
    """The group that a request is for lies on another shard; the router forwards the request."""

    def __init__(self, owner: int, group: GroupId, epoch: int = 0) -> None:
        self.owner = owner
        self.group = group
        self.epoch = epoch  # the incarnation of a partition: when it was created
        super().__init__(f"group {group} is on shard {owner}")


def metadata_elsewhere() -> ElsewhereError:
    """Return that a request is for the metadata group, which is on shard 0."""
    return ElsewhereError(METADATA_SHARD, METADATA_GROUP)
