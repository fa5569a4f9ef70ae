"""Decides what to answer instead of a refusal that rests on metadata which may be old (O6.2)."""

from headrace.ports.probes import Probes
from headrace.shard.metadata import Metadata
from headrace.wire.errors import Code

_RESTS_ON_METADATA = (
    Code.UNAUTHORIZED,
    Code.RESOURCE_NOT_FOUND,
    Code.STREAM_ID_NOT_FOUND,
    Code.STREAM_NAME_NOT_FOUND,
    Code.TOPIC_ID_NOT_FOUND,
    Code.TOPIC_NAME_NOT_FOUND,
    Code.PARTITION_NOT_FOUND,
    Code.CONSUMER_GROUP_ID_NOT_FOUND,
    Code.CONSUMER_GROUP_NAME_NOT_FOUND,
    Code.CONSUMER_GROUP_MEMBER_NOT_FOUND,
    Code.CONSUMER_GROUP_PARTITION_NOT_OWNED,
)

assert len(dict.fromkeys(_RESTS_ON_METADATA)) == len(_RESTS_ON_METADATA), "a code stands once"
assert Code.TRANSIENT_NOT_ACCEPTED not in _RESTS_ON_METADATA, "what is judged is judged once"


class Refusals:
    """What is not found here, or is not allowed, may be by now: whoever leads knows."""

    def __init__(self, metadata: Metadata, probes: Probes) -> None:
        self._metadata = metadata
        self._probes = probes

    def judge(self, code: Code) -> Code:
        """Return the code to answer with."""
        if code in _RESTS_ON_METADATA and not self._metadata.is_current:
            self._probes.hit("refusal.may_be_old")
            return Code.TRANSIENT_NOT_ACCEPTED
        return code
