"""The `headrace` command, built on the client; heavy modules are loaded by name when needed."""
