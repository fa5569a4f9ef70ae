"""Suggests the known name that is closest to an unknown one."""

import difflib
from collections.abc import Iterable

_ASKED_CHARACTERS_MAX = 200  # longer names match nothing, and comparing them is slow


def hint_nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a hint that names the closest known name, or an empty text if none is close.

    Names with points are paths of keys: a path with the same last part is close, too. `prefix` is
    common to all known names and left out of the comparison.
    """
    names = list(known)
    asked = name[:_ASKED_CHARACTERS_MAX]
    near = difflib.get_close_matches(asked, names, n=5)
    if not near:
        # The right key in the wrong section, or without one.
        last = asked.rpartition(".")[2]
        near = [path for path in names if path.rpartition(".")[2] == last]
    if not near:
        return ""

    def likeness(path: str) -> tuple[float, int]:
        # Of two equally close names, prefer the same length: that finds swapped letters.
        return difflib.SequenceMatcher(None, path, asked).ratio(), -abs(len(path) - len(asked))

    return f"; did you mean {prefix}{max(near, key=likeness)}?"


def refuse_unknown(taker: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of options; `taker` is the function or object that takes them.

    Raises:
        TypeError: A name is unknown; the message suggests the closest known one.
    """
    names = list(known)
    for name in given:
        if name not in names:
            hint = hint_nearest(name, names) or f"; it takes {', '.join(names)}"
            raise TypeError(f"{taker} got an unknown option {name!r}{hint}")
