"""Writes docs/guide/configuration.md from the declaration of the keys.

python -m tools.config_page
"""

from pathlib import Path

from headrace.server.config.relations import RELATIONS
from headrace.server.config.sections import SECTIONS, SETTINGS, Declared

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "configuration.md"

_HEAD = """\
# Configuration

Written by `python -m tools.config_page` from the code: change the declaration, not this page.

A node is configured by a TOML file (`--config FILE`), by the environment and by flags; the later
of these three wins. Every key has a variable: `tcp.address` is `HEADRACE_TCP_ADDRESS`. The root
user may also be given as `IGGY_ROOT_USERNAME` and `IGGY_ROOT_PASSWORD`; where both are, ours wins.

```toml
[server]
data_dir = "/var/lib/headrace"

[tcp]
address = "127.0.0.1:8090"
login_timeout = "30 s"

[journal]
bytes_max = "1 GiB"
```

* Sizes are `"64 KiB"`, `"1.5 GB"`, or a number of bytes. Durations need their unit: `"250 ms"`,
  `"30 s"`, `"1 h 30 min"`, `"7 days"`.
* A node that finds anything wrong does not start. It names all that is wrong at once: the key, its
  value, where that came from, what is allowed, and for an unknown key the one that is most like it.
* `headrace config check FILE` says the same without a start; `headrace config show --origin` shows
  every key with its value and where it comes from.
* A variable `HEADRACE_...` that is no key is an error too, but for those of the client commands and
  those that Kubernetes makes of a service named `headrace`.
* A file that holds `root.password` must not be readable for everybody.
* `headrace dev` has some defaults of its own; they stand behind the default of `headrace serve`.
"""


def render() -> str:
    """Give the whole page."""
    parts = [_HEAD]
    for section, kind in SECTIONS.items():
        parts.append(f"\n## [{section}]\n\n{kind.__doc__}\n\n")
        parts.append("| key | default | allowed | meaning |\n|---|---|---|---|\n")
        parts += [_row(each) for each in SETTINGS.values() if each.section == section]
    parts.append("\n## How keys relate\n\n| key | must be |\n|---|---|\n")
    parts += [f"| `{relation.paths[0]}` | {relation.rule} |\n" for relation in RELATIONS]
    return "".join(parts)


def _row(declared: Declared) -> str:
    setting = declared.setting
    default = setting.kind.show(declared.default) or "empty"
    if setting.dev is not None:
        # The one secret among the defaults is known to everybody.
        dev = "iggy" if setting.is_secret else setting.kind.show(setting.dev)
        default += f" (dev: {dev})"
    meaning = setting.meaning + (f"; flag `{setting.flag}`" if setting.flag else "")
    return f"| `{declared.key}` | {default} | {setting.kind.allowed} | {meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"{PAGE.name}: {len(SETTINGS)} keys, {len(RELATIONS)} relations")
