"""How a part says that a request came before its partition."""

from headrace.base.ids import GroupId
from headrace.wire.errors import Code, RefusedError


class EarlyError(RefusedError):
    """A partition of this shard that metadata knows and that is not made here yet (SH-26).

    The router has the request wait; whoever does not know of that refuses it, and it may come
    again.
    """

    def __init__(self, group: GroupId, epoch: int) -> None:
        self.group = group
        self.epoch = epoch  # the incarnation of the partition: when it was created
        super().__init__(Code.TRANSIENT_NOT_ACCEPTED, partition=group)
