"""The commands for operators: run a node, check its configuration and its data folder."""
