"""The cases of the benchmark: which batches, sent and polled in which ways, and their names."""

from bench.frames import Shape
from bench.load import Traffic
from headrace.base.limits import KIB

SHAPES = tuple(Shape(messages, size) for messages in (1, 100, 1000) for size in (100, KIB))
SINGLE = Shape(1, 100)
LARGEST = Shape(1000, KIB)
LOCKSTEP = Traffic(1, 1)
EIGHT = Traffic(8, 1)
SIXTEEN = Traffic(16, 1)
# Requests on their way when pipelined: the server's own pipeline holds 32 of one partition.
DEPTHS = {1: 32, 100: 16, 1000: 8}
DEPTH_OF_LARGEST = 4

TAIL = "tail"
DISK = "disk"


def pipelined(shape: Shape) -> Traffic:
    """Give the traffic of one connection that does not wait for its replies."""
    return Traffic(1, DEPTH_OF_LARGEST if shape == LARGEST else DEPTHS[shape.messages])


def traffics(shape: Shape) -> tuple[Traffic, ...]:
    """Give the ways in which a shape is sent and polled."""
    more = (SIXTEEN,) if shape == SINGLE else ()
    return (LOCKSTEP, EIGHT, *more, pipelined(shape))


def name_of(section: str, kind: str, shape: Shape, traffic: Traffic) -> str:
    """Give the name of a case."""
    return f"{section}/{kind}/{shape}/{traffic}"
