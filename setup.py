"""Builds the native kernel; everything else is declared in pyproject.toml.

The extension is optional: where no compiler works, the build goes on without it and
`headrace.kernel` serves its pure-Python twin (docs/decisions/0003-kernel-and-twin.md).
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "headrace.kernel._native",
            sources=["src/headrace/kernel/_native.c"],
            extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden", "-Wall", "-Wextra"],
            optional=True,
        )
    ]
)
