"""Makes the root user in an empty log (O3.7)."""

from headrace.shard.consensus.clock import Clock
from headrace.shard.metadata_group import MetadataGroup
from headrace.shard.settings import ShardSettings
from headrace.vsr.events import OwnOp
from headrace.wire.commands.users import CREATE_USER, CreateUser
from headrace.wire.numbers import Operation, UserStatus


def make_root(settings: ShardSettings, metadata: MetadataGroup, clock: Clock) -> None:
    """Propose the root user as the first op of an empty log, if it is that and this node leads.

    Not before the time is known: all stamps are held against the first one.
    """
    is_too_early = not metadata.is_serving or not clock.time.clock
    if is_too_early or len(metadata.state.users) or metadata.replica.op > 0:
        return
    assert settings.root_password_hash, "asked for when there is no user yet"
    assert metadata.commit == 0, "nothing is committed in an empty log"
    root = CreateUser(
        username=settings.root_username,
        password=settings.root_password_hash.encode(),
        status=UserStatus.ACTIVE,
    )
    metadata.propose(OwnOp(Operation.CREATE_USER, CREATE_USER.encode_request(root)))
