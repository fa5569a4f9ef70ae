"""The commands that act on objects of a node: `headrace stream`, `topic`, `user` and so on."""
