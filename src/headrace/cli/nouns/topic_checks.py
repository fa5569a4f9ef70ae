"""Checks the options of a topic before they are sent; reports all problems at once."""

from collections.abc import Mapping
from difflib import get_close_matches

from headrace.cli.exits import CommandError, Exit
from headrace.wire.errors import RefusedError
from headrace.wire.fields import make_field
from headrace.wire.options import Option
from headrace.wire.topic_options import TOPIC_OPTIONS, canonical_option


def check(settings: Mapping[str, str]) -> None:
    """Refuse options that no topic can have.

    Raises:
        CommandError: An option is unknown, or its value is not allowed.
    """
    told = (_problem(key, text) for key, text in settings.items())
    problems = [problem for problem in told if problem]
    if problems:
        raise CommandError(
            f"options of a topic: {'; '.join(problems)} (`headrace options` lists them)", Exit.USAGE
        )


def _problem(key: str, text: str) -> str:
    """Return what is wrong with an option; an empty text if it is valid."""
    if key not in TOPIC_OPTIONS:
        near = get_close_matches(key, TOPIC_OPTIONS, n=1)
        meant = f", did you mean {near[0]}" if near else ""
        return f"{key} is not known{meant}"
    if not text:
        return f"{key} has no value"
    try:
        canonical_option(Option(key, make_field(text)))
    except RefusedError as error:
        refused = f"{text!r} is not allowed: {TOPIC_OPTIONS[key].description}"
        return f"{key}: {error.facts.get('what') or refused}"
    return ""
