"""All planted bugs, by their names."""

from tests.planted import of_groups, of_metadata, of_nodes, of_shards

_PARTS = (of_groups.BUGS, of_nodes.BUGS, of_metadata.BUGS, of_shards.BUGS)
BUGS = {name: bug for part in _PARTS for name, bug in part.items()}
assert len(BUGS) == sum(map(len, _PARTS)), "a name is given twice"
