"""All planted bugs, by their names."""

from tests.planted import of_groups, of_nodes

BUGS = {**of_groups.BUGS, **of_nodes.BUGS}
assert len(BUGS) == len(of_groups.BUGS) + len(of_nodes.BUGS), "a name is given twice"
