"""What the rooms of a shard ask of the metadata, whether its group is on this shard or not.

The shard that has the metadata group answers by `MetadataGroup`. A shard without it can rest on an
image of the metadata that is fed by the shard that has the group: `front` and `owned` know this
interface alone.
"""

from typing import Protocol

from headrace.metadata.machine import MetadataMachine
from headrace.metadata.state import State
from headrace.ports.network import Buffer
from headrace.wire.requests import RequestHeader


class Metadata(Protocol):
    """The committed metadata as it is known here, and the way to its group."""

    @property
    def state(self) -> State:
        """Return what the metadata group has decided, as far as it is applied here."""

    @property
    def commit(self) -> int:
        """Return how far that is; whatever depends on metadata and is kept is of this number."""

    @property
    def machine(self) -> MetadataMachine:
        """Return the machine that has applied it."""

    @property
    def log_stamp(self) -> int:
        """Return the newest stamp of the log, committed or not; 0 where the log is not."""

    @property
    def is_serving(self) -> bool:
        """Whether requests can be handed to the group here: it leads, as far as is known."""

    @property
    def is_current(self) -> bool:
        """Whether nobody can have decided anything that is not applied here (O6.2)."""

    @property
    def is_caught_up(self) -> bool:
        """Whether all that this node ever applied of the metadata is applied again (RC-16).

        Until then a partition that it has seen deleted may seem to exist.
        """

    @property
    def is_without_space(self) -> bool:
        """Whether the store of the group waits for space on the disk."""

    def put_request(self, header: RequestHeader, body: Buffer) -> None:
        """Hand a request to the group; its reply comes with the end of a turn."""

    def answer_again(self, header: RequestHeader, body: Buffer) -> bool:
        """Have a request that was applied answered again; return whether it was applied."""
