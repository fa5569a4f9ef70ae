"""The clients of Iggy's own language against a node: `make night`.

python -m tools.night_crates terminal   every command of `iggy-cli`
python -m tools.night_crates calls      every call of the crate `iggy`, by `tools/rust_client`
python -m tools.night_crates all

Both are built by cargo, from the crate registry, into `build/rust`; without cargo nothing is run.
Each lane prints a table, and ends with 1 if an outcome was not the right one or one is missing.
"""

import argparse
import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import headrace
from tests.known_secrets import remember
from tests.node import Node, running_node
from tests.watched_nodes import watched_nodes
from tools.iggy_commands import COMMANDS, LEFT_OUT, TRANSPORTS_LEFT_OUT, Command

TERMINAL_VERSION = "0.14.0"
SDK_VERSION = "0.11.0"
ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tools" / "rust_client"
FOLDER = ROOT / "build" / "rust"
COMMAND_SECONDS_MAX = 60
CALLS_SECONDS_MAX = 1200
_LINES_SHOWN = 20
_TRAITS = "src/traits"
_METHOD = re.compile(r"^    async fn (\w+)", re.MULTILINE)
_HELP_ENTRY = re.compile(r"^  ([a-z][a-z-]*)\b", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What came of a command or a call; no error means that it was right."""

    call: str
    error: str = ""

    def __str__(self) -> str:
        """Give a line of the table."""
        return f"  {'failed' if self.error else 'ok':<7}{self.call}  {self.error}".rstrip()


def why_not() -> str:
    """Give the reason why the lanes cannot be run here, or nothing."""
    return "" if shutil.which("cargo") else "the Rust clients need cargo, which is not here"


def build_terminal(folder: Path) -> Path:
    """Install `iggy-cli` into a folder; give the program."""
    crate = f"iggy-cli@{TERMINAL_VERSION}"
    _cargo(folder, "install", crate, "--locked", "--debug", "--root", str(folder))
    return folder / "bin" / "iggy"


def build_calls(folder: Path) -> Path:
    """Build the program of every call; give it."""
    _cargo(folder, "build", "--manifest-path", str(PROGRAM / "Cargo.toml"))
    return folder / "target" / "debug" / "rust_client"


def _cargo(folder: Path, verb: str, *arguments: str) -> None:
    command = ["cargo", verb, "--target-dir", str(folder / "target"), *arguments]
    lean = os.environ | {"CARGO_PROFILE_DEV_DEBUG": "0"}
    done = subprocess.run(  # noqa: S603 - cargo, with arguments from here
        command, env=lean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    last = "\n".join(done.stdout.splitlines()[-_LINES_SHOWN:])
    assert done.returncode == 0, f"{shlex.join(command)}:\n{last}"


def run_terminal(folder: Path) -> list[Outcome]:
    """Run every command of the terminal against a new node."""
    terminal = build_terminal(folder)
    with running_node() as node, TemporaryDirectory(prefix="headrace-night-") as home:
        run = _Terminal(terminal, node, Path(home))
        with headrace.connect(str(node.tcp), username="iggy", password="iggy"):  # noqa: S106 - of dev
            outcomes = [run.judge(command) for command in COMMANDS]
        return outcomes + find_missing(run.list_commands(), COMMANDS)


class _Terminal:
    """The terminal, with an empty folder of its own for its contexts, and without a key ring."""

    def __init__(self, program: Path, node: Node, home: Path) -> None:
        self._program = program
        self._node = node
        self._home = home
        self._places = {
            "folder": str(home),
            "tcp": str(node.tcp),
            "key": base64.b64encode(bytes(range(32))).decode(),
        }

    def judge(self, command: Command) -> Outcome:
        """Run a command and compare what came of it."""
        try:
            line = _fill(f"{command.as_user} {command.line}", self._places)
        except KeyError as missing:
            return Outcome(command.line, f"an earlier command did not say {missing}")
        said, code = self._run(shlex.split(line), command.feeds)
        self._node.check_alive()
        return Outcome(command.line, self._find_fault(command, said, code))

    def list_commands(self) -> list[str]:
        """Give the nouns with their verbs, as the help has them."""
        found = []
        for noun in _entries(self._run(["--help"])[0]):
            verbs = _entries(self._run([noun, "--help"])[0])
            found += [f"{noun} {verb}" for verb in verbs] or [noun]
        return found

    def _find_fault(self, command: Command, said: str, code: int) -> str:
        if bool(code) != command.fails:
            return f"ended with {code}: {_last_words(said)}"
        wanted = _fill(command.says, self._places)
        if not re.search(wanted, said, re.IGNORECASE):
            return f"does not say {wanted!r}: {_last_words(said)}"
        place, pattern = command.keeps
        if place:
            found = re.search(pattern, said)
            if found is None:
                return f"has no {place}: {_last_words(said)}"
            self._places[place] = found[1]
            if place == "token":
                remember(found[1])
        return ""

    def _run(self, arguments: list[str], feeds: str = "") -> tuple[str, int]:
        here = {
            "HOME": str(self._home),
            "IGGY_HOME": str(self._home / "iggy"),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self._home / 'no-bus'}",
        }
        try:
            done = subprocess.run(  # noqa: S603 - the terminal, with arguments from here
                [self._program, "--tcp-server-address", self._places["tcp"], *arguments],
                cwd=self._home,
                env={"PATH": os.environ["PATH"]} | here,
                input=feeds,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {COMMAND_SECONDS_MAX} s", -1
        return done.stdout, done.returncode


def find_missing(listed: Iterable[str], commands: Iterable[Command]) -> list[Outcome]:
    """Give a failure for each command of the help that is neither run nor left out."""
    lines = [f"{command.line} " for command in commands]
    missing = [
        each
        for each in listed
        if each not in LEFT_OUT
        and not any(line.startswith(f"{each} ") or f" {each} " in line for line in lines)
    ]
    return [Outcome(each, "is in the help and never run") for each in missing]


def run_calls(folder: Path) -> list[Outcome]:
    """Run every call of the crate against a new node."""
    program = build_calls(folder)
    with running_node() as node:
        said, complaint = _run_program(program, str(node.tcp))
    outcomes = read_report(said)
    if complaint:
        outcomes.append(Outcome("the program", complaint))
    return outcomes + find_uncalled(_list_calls(), outcomes)


def _run_program(program: Path, address: str) -> tuple[str, str]:
    """Give what it printed, and what is wrong with its end."""
    with TemporaryDirectory(prefix="headrace-night-") as folder:
        said, told = Path(folder) / "said", Path(folder) / "told"
        with said.open("w") as output, told.open("w") as errors:
            try:
                code = subprocess.run(  # noqa: S603 - our program
                    [program, address],
                    stdout=output,
                    stderr=errors,
                    timeout=CALLS_SECONDS_MAX,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return said.read_text(), f"no end after {CALLS_SECONDS_MAX} s"
        complaint = f"ended with {code}: {_last_words(told.read_text())}" if code else ""
        return said.read_text(), complaint


def read_report(text: str) -> list[Outcome]:
    """Read what the program of every call prints."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [Outcome(call, error) for _, call, error in lines]


def find_uncalled(calls: Iterable[str], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Give a failure for each method of the crate of which the report says nothing."""
    called = {outcome.call.partition(":")[0] for outcome in outcomes}
    return [Outcome(call, "is never called") for call in calls if call not in called]


def _list_calls() -> list[str]:
    """Give the methods of the traits that every client of the crate has."""
    asked = ["cargo", "metadata", "--format-version", "1"]
    told = subprocess.run(  # noqa: S603 - cargo, with arguments from here
        [*asked, "--manifest-path", str(PROGRAM / "Cargo.toml")], stdout=subprocess.PIPE, check=True
    )
    packages = {each["name"]: each for each in json.loads(told.stdout)["packages"]}
    traits = Path(packages["iggy_common"]["manifest_path"]).parent / _TRAITS
    files = [*sorted(traits.glob("*_client.rs")), traits / "client.rs"]
    calls = [call for file in files for call in _METHOD.findall(file.read_text())]
    assert calls, f"no calls in {traits}"
    return calls


def _fill(text: str, places: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: places[found[1]], text)


def _entries(help_text: str) -> list[str]:
    """Give what stands under `Commands:` in a help."""
    _, _, after = help_text.partition("Commands:\n")
    listed = after.partition("\n\n")[0]
    return [entry for entry in _HELP_ENTRY.findall(listed) if entry != "help"]


def _last_words(said: str) -> str:
    return " / ".join(line.strip() for line in said.splitlines()[-4:] if line.strip())[-300:]


LANES: dict[str, Callable[[Path], list[Outcome]]] = {"terminal": run_terminal, "calls": run_calls}


def main() -> int:
    """Run the lanes that are named; give 1 if an outcome was not right."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("lane", choices=[*LANES, "all"])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where both are built")
    asked = parser.parse_args()
    if reason := why_not():
        print(f"not run: {reason}")
        return 0
    failed = 0
    for name in LANES if asked.lane == "all" else (asked.lane,):
        began = time.monotonic()
        with watched_nodes():
            outcomes = LANES[name](asked.folder)
        bad = [outcome for outcome in outcomes if outcome.error]
        failed += len(bad)
        print("\n".join([f"{name}:", *map(str, outcomes)]))
        if name == "terminal":
            left_out = LEFT_OUT | TRANSPORTS_LEFT_OUT
            print("\n".join(f"  not run {line}  {why}" for line, why in left_out.items()))
        print(f"{name}: {len(outcomes)}, {len(bad)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
