"""The `headrace` command, built on the client; heavy parts are loaded by name, lazily."""
