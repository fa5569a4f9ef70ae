"""The bodies of every command, by subject, and the table that joins code, operation and bodies."""
