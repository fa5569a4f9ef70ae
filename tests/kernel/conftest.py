"""The two kernels, each loaded directly, whichever of them `headrace.kernel` serves."""

import importlib
import os
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

# Where another build of the native kernel lies, such as the one with sanitizers.
NATIVE_PATH = "HEADRACE_NATIVE_PATH"


@pytest.fixture(scope="session")
def twin() -> ModuleType:
    return importlib.import_module("headrace.kernel.twin")


@pytest.fixture(scope="session")
def native() -> ModuleType:
    path = os.environ.get(NATIVE_PATH)
    if path is not None:
        return load_native(path)
    try:
        return importlib.import_module("headrace.kernel._native")
    except ImportError as error:
        pytest.skip(f"the native kernel is not built: {error}")


def load_native(path: str) -> ModuleType:
    spec = spec_from_file_location("_native", path, loader=ExtensionFileLoader("_native", path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", params=["twin", "native"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    chosen = request.getfixturevalue(request.param)
    assert isinstance(chosen, ModuleType)
    return chosen
