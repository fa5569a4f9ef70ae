"""The name that somebody probably meant."""

import difflib
from collections.abc import Iterable

_ASKED_CHARACTERS_MAX = 200  # a longer one is like nothing known, and comparing it would cost


def hint_nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a hint at the most similar known name, or nothing if none is similar.

    Names with points are paths of keys: one that has the right last part is near, too. `prefix` is
    what all of them begin with, left out in the comparison.
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
        # Of two that are as like, the one as long: that finds letters that changed places.
        return difflib.SequenceMatcher(None, path, asked).ratio(), -abs(len(path) - len(asked))

    return f"; did you mean {prefix}{max(near, key=likeness)}?"


def refuse_unknown(taker: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of options; `taker` is what they were given to.

    Raises:
        TypeError: One is unknown; the message has the known name that is most like it.
    """
    names = list(known)
    for name in given:
        if name not in names:
            hint = hint_nearest(name, names) or f"; it takes {', '.join(names)}"
            raise TypeError(f"{taker} got an unknown option {name!r}{hint}")
