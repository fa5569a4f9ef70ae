"""One furnished node for all the matrices of a worker."""

from collections.abc import Iterator

import pytest

from tests import crossings
from tests.node import running_node
from tests.security.house import House, make_house


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    with running_node() as node, make_house(node) as made:
        yield made
        crossings.note(node)
