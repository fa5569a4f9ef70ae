"""Every call that the protocol has, declared once: both faces of the client make methods of these.

Each function gives a `Call`; the methods of the same names send it. The examples in their
docstrings show the methods, with a connected `client`, and are run as tests.
"""
