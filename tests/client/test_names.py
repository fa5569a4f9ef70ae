"""What `import headrace` offers: the same names in the module, in its types and in the client."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
import headrace.client

STUB = Path(headrace.__file__).with_suffix(".pyi")


def test_module_types_and_client_offer_the_same_names() -> None:
    offered = dict(vars(headrace))["_HOMES"]
    typed = re.findall(r"^from \S+ import \w+ as (\w+)$", STUB.read_text(), re.MULTILINE)
    assert sorted(typed) == sorted([*offered, "aio"])
    assert sorted([*headrace.client.__all__, "connect"]) == sorted(offered)
    for name in (*offered, "aio"):
        assert getattr(headrace, name) is not None
        assert name in dir(headrace)


def test_a_name_that_is_not_offered() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headrace.nothing  # type: ignore[attr-defined] # noqa: B018 - that is the point


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import headrace, sys; print([name for name in sys.modules if 'headrace.' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_plugin_loads_no_client_before_it_is_used() -> None:
    code = "import headrace.pytest_plugin, sys; print('headrace.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
