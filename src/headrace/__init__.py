"""Headrace: a persistent message-streaming platform with Spark built in.

This module imports nothing of the package, so that no layer pulls in another by accident.
"""

__version__ = "0.1.0"
