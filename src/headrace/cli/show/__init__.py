"""How results are printed: tables for people, JSON and YAML for programs, progress on stderr."""
