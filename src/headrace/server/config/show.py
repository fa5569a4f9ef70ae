"""A configuration as rows: every key, its value as it would be written, its origin."""

from headrace.server.config.sections import SETTINGS, ServerConfig


def describe(config: ServerConfig) -> list[dict[str, str]]:
    """Return a row for every key; secrets are masked, as in every log."""
    return [
        {
            "key": path,
            "value": config.show(path),
            "origin": config.origin(path),
            "allowed": declared.setting.kind.allowed,
            "meaning": declared.setting.meaning,
        }
        for path, declared in SETTINGS.items()
    ]
