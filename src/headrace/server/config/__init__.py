"""The configuration of a node: its keys, their sources, the rules between them."""
