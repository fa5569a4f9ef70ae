"""The job files of the guide: they load as they stand."""

import re
from pathlib import Path

import pytest

from headrace.pipelines.declarations import load_jobs

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs" / "guide" / "pipelines.md"
_BLOCK = re.compile(r"^```(toml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def job_blocks() -> list[tuple[str, str]]:
    """Give the declared jobs, each with how its file ends."""
    found = _BLOCK.findall(GUIDE.read_text())
    return [
        ("toml" if kind == "toml" else "py", text)
        for kind, text in found
        if kind == "toml" or text.startswith("# job:")
    ]


@pytest.mark.parametrize("index", range(len(job_blocks())))
def test_a_job_of_the_guide(index: int, tmp_path: Path) -> None:
    ending, text = job_blocks()[index]
    file = tmp_path / f"job.{ending}"
    file.write_text(text)
    assert load_jobs(file).pipelines


def test_the_guide_has_jobs_of_both_kinds() -> None:
    assert {ending for ending, _ in job_blocks()} == {"toml", "py"}


def test_the_job_of_the_demo() -> None:
    assert list(load_jobs(ROOT / "examples" / "sales.toml").pipelines) == ["sales"]
