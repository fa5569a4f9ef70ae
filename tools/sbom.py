"""What is in an installed Headrace: a bill of materials in CycloneDX JSON, made from the lock.

    python -m tools.sbom [--lock requirements/runtime.lock] [--output FILE]

The lock knows it all: names, versions, hashes, and who wants whom. So there is no tool to install,
and the same tree gives the same bytes. A time is told only if SOURCE_DATE_EPOCH says one.
"""

import argparse
import json
import os
import tomllib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.lockfile import Locked, read_lock

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
LOCK = ROOT / "requirements" / "runtime.lock"
SPEC_VERSION = "1.6"
_MARKER_PROPERTY = "headrace:environment-marker"


def make_bill(
    project: dict[str, Any], packages: Sequence[Locked], time: str | None
) -> dict[str, Any]:
    """Give the bill of a project and the packages that are installed with it."""
    name, version = project["name"], project["version"]
    product = {
        "type": "application",
        "bom-ref": name,
        "name": name,
        "version": version,
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": _purl(name, version),
    }
    content = {
        "components": [_component(package) for package in packages],
        "dependencies": _dependencies(name, packages),
    }
    # The number names the content: the same content has the same number.
    text = json.dumps([product, content], sort_keys=True)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, text)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {**({"timestamp": time} if time else {}), "component": product},
        **content,
    }


def _component(package: Locked) -> dict[str, Any]:
    purl = _purl(package.name, package.version)
    files = [{"alg": "SHA-256", "content": digest} for digest in package.hashes]
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.name,
        "name": package.name,
        "version": package.version,
        "scope": "required",
        "purl": purl,
        # Not the hashes of the component itself: one of these files is installed.
        "externalReferences": [{"type": "distribution", "url": purl, "hashes": files}],
    }
    if package.marker:
        made["properties"] = [{"name": _MARKER_PROPERTY, "value": package.marker}]
    return made


def _dependencies(product: str, packages: Sequence[Locked]) -> list[dict[str, Any]]:
    """Turn who is wanted by whom around; an input file stands for the product."""
    names = [package.name for package in packages]
    needs: dict[str, list[str]] = {name: [] for name in (product, *names)}
    for package in packages:
        for wanting in package.wanted_by:
            needs[wanting if wanting in names else product].append(package.name)
    return [{"ref": name, "dependsOn": sorted(found)} for name, found in needs.items()]


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def told_time(epoch: str | None) -> str | None:
    """Give the time that SOURCE_DATE_EPOCH says, as the format wants it."""
    return None if epoch is None else datetime.fromtimestamp(int(epoch), UTC).isoformat()


def main() -> None:
    """Write the bill to a file, or print it."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.sbom", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--output", type=Path, metavar="FILE")
    asked = parser.parse_args()
    project = tomllib.loads(PROJECT.read_text())["project"]
    bill = make_bill(project, read_lock(asked.lock), told_time(os.environ.get("SOURCE_DATE_EPOCH")))
    text = json.dumps(bill, indent=2) + "\n"
    if asked.output is None:
        print(text, end="")
        return
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(text)
    print(f"{asked.output}: {len(bill['components'])} packages")


if __name__ == "__main__":
    main()
