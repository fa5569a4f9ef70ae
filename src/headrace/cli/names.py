"""How arguments name objects: `shop/orders` or `1/2` for a topic, by name or by number.

```python
@click.argument("stream", callback=read_identifier)
@topic_argument
```

Digits are read as a number; `name:7` is the name `7`.
"""

from typing import TypeAlias

import click

from headrace.base.limits import NAME_BYTES_MAX

# A stream and a topic of it, each by number or name.
TopicName: TypeAlias = tuple[int | str, int | str]

NAME_PREFIX = "name:"
_NUMBER_MAX = (1 << 32) - 1


def read_identifier(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> int | str | None:
    """Read an argument or option that names an object."""
    try:
        return None if text is None else parse_identifier(text)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def read_topic(ctx: click.Context, param: click.Parameter, text: str) -> TopicName:
    """Read an argument that names a topic."""
    stream, slash, topic = text.partition("/")
    if not (stream and slash and topic) or "/" in topic:
        raise click.BadParameter(
            f"{text!r} is no topic: write STREAM/TOPIC, such as shop/orders", ctx, param
        )
    try:
        return parse_identifier(stream), parse_identifier(topic)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def read_pairs(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Read an option that is given as KEY=VALUE, any number of times."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign):
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", ctx, param)
        if key in pairs:
            raise click.BadParameter(f"{key} is given twice", ctx, param)
        pairs[key] = value
    return pairs


def parse_identifier(text: str) -> int | str:
    """Return the number if the text is one, else the name.

    Raises:
        ValueError: It is too large for a number, or not a valid name.
    """
    name = text.removeprefix(NAME_PREFIX)
    if name == text and text.isascii() and text.isdecimal():
        if int(text) > _NUMBER_MAX:
            raise ValueError(f"{text} is above {_NUMBER_MAX}; write {NAME_PREFIX}{text} for a name")
        return int(text)
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"a name of {len(name.encode())} bytes, allowed 1 to {NAME_BYTES_MAX}")
    return name


def show_topic(topic: TopicName) -> str:
    """Return a topic as users write it."""
    return f"{topic[0]}/{topic[1]}"


topic_argument = click.argument("topic", callback=read_topic, metavar="STREAM/TOPIC")
partition_argument = click.argument("partition", type=click.IntRange(0, _NUMBER_MAX))
