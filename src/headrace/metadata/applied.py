"""What was applied of late, for those outside the replicated state who must act on it.

Sessions end when their user or token changed, and the audit log tells of what matters. Neither is
part of the state: replicas that nobody is connected to have nothing to end.
"""

import msgspec

from headrace.wire.errors import Code
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PrepareHeader

# What decides who may still be here.
OF_USERS = (
    Operation.CREATE_USER,
    Operation.UPDATE_USER,
    Operation.DELETE_USER,
    Operation.CHANGE_PASSWORD,
    Operation.UPDATE_PERMISSIONS,
    Operation.CREATE_PERSONAL_ACCESS_TOKEN,
    Operation.DELETE_PERSONAL_ACCESS_TOKEN,
)
OF_REMOVALS = (
    Operation.DELETE_STREAM,
    Operation.PURGE_STREAM,
    Operation.DELETE_TOPIC,
    Operation.PURGE_TOPIC,
    Operation.DELETE_PARTITIONS,
    Operation.DELETE_CONSUMER_GROUP,
)
NOTED = (*OF_USERS, *OF_REMOVALS, Operation.ACCEPT_TIME)


class Applied(msgspec.Struct, frozen=True):
    """One op, with the code it was refused with, if it was."""

    header: PrepareHeader
    body: bytes
    refusal: Code | None = None
