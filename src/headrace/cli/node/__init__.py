"""The commands for operators: run a node, look after it, check its settings and data folder."""
