"""How `with` blocks end: they close what is open and raise one error, not two."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from headrace.client.errors import HeadraceError


class Closable(ABC):
    """An object that a `with` block closes."""

    @abstractmethod
    def _end(self, *, is_clean: bool) -> None:
        """Close it; `is_clean` means that the block ended without an error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end(is_clean=error is None)
        except HeadraceError:
            if error is None:  # else that error is what the user must see
                raise


class AsyncClosable(ABC):
    """An object that an `async with` block closes."""

    @abstractmethod
    async def _end(self, *, is_clean: bool) -> None:
        """Close it; `is_clean` means that the block ended without an error."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._end(is_clean=error is None)
        except HeadraceError:
            if error is None:  # else that error is what the user must see
                raise
