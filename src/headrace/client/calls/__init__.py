"""Every call of the protocol, declared once; both clients make methods of them.

Each function returns a `Call`, and the methods of the same name send it. The examples in the
docstrings show the methods of a connected `client`, and run as tests.
"""
