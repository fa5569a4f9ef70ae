"""Finds the messages that a server cannot read by polling: a refusal has no range.

```
 first                      end
   |xxxxxxxxxxxxxxxxxxxxxxxxx|.......        x: refused with 4011
   +1 +1 +1 ... 4,096 times, then +1 +2 +4 ... back to the edge by halves
```

The first offsets are tried one by one, so that no readable message between two damaged batches is
skipped. Longer damage (a whole file) is measured with doubling steps: short readable runs inside it
may then count as damaged.
"""

from headrace.client.calls.messages import poll_from
from headrace.client.calls.names import ANONYMOUS, TopicName, join_topic
from headrace.client.calls.segments import plan_page
from headrace.client.errors import RefusedByServer, Unreadable, refused
from headrace.client.messages import Messages
from headrace.client.session.call import Call, Flow, ask
from headrace.wire.errors import Code
from headrace.wire.identifiers import First, FromOffset, Strategy

SINGLE_STEPS_MAX = 4_096
_BEYOND = 1 << 62  # after every message: a poll from there reads nothing


def find_unreadable(topic: TopicName, partition: int, strategy: Strategy) -> Flow[Unreadable]:
    """Return the range for which a poll was refused with CANNOT_READ_MESSAGE.

    Raises:
        RefusedByServer: Nothing of the partition can be read, or the start of the poll is unknown.
    """
    first = yield from _find_first(topic, partition, strategy)
    end = (yield from ask(_probe(topic, partition, _BEYOND))).current_offset + 1
    bad, good, step = first, first + 1, 1
    while good < end and not (yield from _is_readable(topic, partition, good)):
        if good - first >= SINGLE_STEPS_MAX:
            step *= 2
        bad, good = good, good + step
    good = min(good, end)
    while good - bad > 1:
        middle = (bad + good) // 2
        if (yield from _is_readable(topic, partition, middle)):
            good = middle
        else:
            bad = middle
    return Unreadable(join_topic(topic), partition, first=first, end=good)


def _find_first(topic: TopicName, partition: int, strategy: Strategy) -> Flow[int]:
    if isinstance(strategy, FromOffset):
        return strategy.offset
    if isinstance(strategy, First):
        return (yield from ask(plan_page(topic, partition, start=0))).first_offset
    raise refused(Code.CANNOT_READ_MESSAGE, f"poll {join_topic(topic)!r}, partition {partition}")


def _probe(topic: TopicName, partition: int, offset: int) -> Call[Messages]:
    return poll_from(topic, partition, FromOffset(offset), who=ANONYMOUS, count=1)


def _is_readable(topic: TopicName, partition: int, offset: int) -> Flow[bool]:
    try:
        yield from ask(_probe(topic, partition, offset))
    except RefusedByServer as error:
        if error.code != Code.CANNOT_READ_MESSAGE:
            raise
        return False
    return True
