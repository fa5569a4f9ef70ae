"""What a command is: its code, its operation, and the codecs of its two bodies."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.wire.codec import Codec, Data, decode, encode
from headrace.wire.numbers import Operation

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True)
class Command(Generic[Q, R]):
    """One command of a client.

    The code names it everywhere; on the wire it travels only with operation NON_REPLICATED, where
    the operation alone does not identify it.
    """

    code: int
    name: str
    operation: Operation
    request: Codec[Q]
    reply: Codec[R]

    def encode_request(self, request: Q) -> bytes:
        """Return the body of a request.

        Raises:
            ValueError: A value does not fit its field.
        """
        return encode(self.request, request)

    def decode_request(self, body: Data) -> Q:
        """Read the body of a request.

        Raises:
            DecodeError: The body is not one of this command; its code is the answer.
        """
        return decode(self.request, body)

    def encode_reply(self, reply: R) -> bytes:
        """Return the payload of a reply, without a result section."""
        return encode(self.reply, reply)

    def decode_reply(self, payload: Data) -> R:
        """Read the payload of a reply, behind its result section.

        Raises:
            DecodeError: The payload is not one of this command.
        """
        return decode(self.reply, payload)
