"""Destructive commands ask for confirmation: by a question on a terminal, else by `--yes`.

```python
@stream.command("delete", short_help="Delete a stream.")
@with_yes
@with_output
@with_client
def delete_stream(client: "Client", be_sure: Sure, ...) -> Done:
    be_sure(f"delete the stream {stream} with 3 topics and 40 messages")
```
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import click

from headrace.cli.exits import CommandError, Exit

# Returns if the user agrees to the described action; raises otherwise.
Sure: TypeAlias = Callable[[str], None]


def with_yes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --yes, and pass the confirmation function to the command as `be_sure`."""

    @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
    @functools.wraps(command)
    def asked(*, yes: bool, **rest: Any) -> Any:  # noqa: ANN401 - the command's own
        return command(be_sure=functools.partial(_be_sure, is_agreed=yes), **rest)

    return asked


def _be_sure(words: str, *, is_agreed: bool) -> None:
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"this would {words}: say --yes if it is meant", Exit.USAGE)
    if not click.confirm(f"This will {words}. Go on?", err=True):
        raise CommandError("nothing was done")
