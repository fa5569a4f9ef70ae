"""Reads job files: TOML, or Python with decorated functions. Returns their tables unchecked.

```python
from headrace.pipelines import pipeline

@pipeline(source={"orders": {"topic": "shop/orders", "schema": "product STRING, cents BIGINT"}},
          sink={"kind": "delta", "path": "tables/sales"}, checkpoint="checkpoints/sales")
def sales(orders):
    return orders.groupBy("product").sum("cents")
```
"""

import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.pipelines.declared import Transform


class FileError(ValueError):
    """All problems of a job file, one per line."""

    def __init__(self, file: Path, problems: list[str]) -> None:
        assert problems
        self.problems = problems
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))


class PipelineFunction:
    """A function that declares a job; it can still be called, for example in tests."""

    def __init__(self, function: Transform, keys: dict[str, Any]) -> None:
        self.function = function
        self.keys = keys
        self.__doc__ = function.__doc__
        self.__name__: str = function.__name__

    def __call__(self, *frames: Any) -> Any:  # noqa: ANN401 - DataFrames, which need no Spark here
        return self.function(*frames)


def pipeline(**keys: Any) -> Callable[[Transform], PipelineFunction]:  # noqa: ANN401 - as in TOML
    """Declare a job whose rows the function transforms; the keys are those of a TOML file.

    The job has the function's name, with dashes for underscores, unless `name` is given.
    """
    return lambda function: PipelineFunction(function, keys)


def read_tables(file: Path) -> dict[str, Any]:
    """Return the content of a job file as tables.

    Raises:
        FileError: It cannot be read, or is not a job file.
    """
    if file.suffix == ".py":
        return _python_tables(file)
    try:
        return tomllib.loads(file.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise FileError(file, [f"is not UTF-8 at byte {error.start}"]) from None
    except tomllib.TOMLDecodeError as error:
        raise FileError(file, [f"is not TOML: {error}"]) from None
    except OSError as error:
        raise FileError(file, [error.strerror or str(error)]) from None


def find_function(name: str, folder: Path) -> Transform:
    """Return the function named `module:name`; modules next to the file are found, too.

    Raises:
        ValueError: The module or the function does not exist.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError("is no function: write module:name")
    _make_importable(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001 - a user's module fails in any way it likes
        raise ValueError(f"{module_name} cannot be imported: {_describe(error)}") from None
    _send_by_value(module, folder)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ValueError(f"{module_name} has no function {attribute}")  # noqa: TRY004 - a value
    return found  # type: ignore[no-any-return]  # a user's function; Spark checks what it gives


def _send_by_value(module: ModuleType, folder: Path) -> None:
    """Pickle the functions of a module next to the file by value: workers cannot import it."""
    from pyspark.cloudpickle import register_pickle_by_value  # noqa: PLC0415 - Spark is an extra

    if module.__file__ and Path(module.__file__).resolve().is_relative_to(folder):
        register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # it has no types


def _python_tables(file: Path) -> dict[str, Any]:
    module = _load_module(file)
    declared: dict[str, Any] = {}
    problems: list[str] = []
    for each in vars(module).values():
        if not isinstance(each, PipelineFunction):
            continue
        keys = dict(each.keys)
        name = str(keys.pop("name", each.__name__.replace("_", "-")))
        if name in declared:
            problems.append(f"pipeline.{name}: is declared twice")
        declared[name] = keys | {"function": each.function}
    if problems:
        raise FileError(file, problems)
    return {"pipeline": declared} | {"spark": getattr(module, "spark", {})}


def _load_module(file: Path) -> ModuleType:
    _make_importable(file.resolve().parent)
    name = f"headrace_job_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise FileError(file, ["is no Python file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their own module while they are created
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - a user's module fails in any way it likes
        raise FileError(file, [f"cannot be run: {_describe(error)}"]) from None
    finally:
        # Functions of a module that workers cannot import are pickled by value.
        del sys.modules[name]
    return module


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
