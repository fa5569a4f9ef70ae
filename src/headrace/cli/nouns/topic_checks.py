"""Checks the options of a topic before they are sent: every problem at once, with the way out."""

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
        CommandError: Some are not known, or have a value that they cannot have.
    """
    told = (_problem(key, text) for key, text in settings.items())
    problems = [problem for problem in told if problem]
    if problems:
        raise CommandError(
            f"options of a topic: {'; '.join(problems)} (`headrace options` lists them)", Exit.USAGE
        )


def _problem(key: str, text: str) -> str:
    """Say what is wrong with an option; nothing if it is right."""
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
