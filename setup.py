"""Builds the native kernel; everything else is declared in pyproject.toml.

The extension is optional: where no compiler works, the build goes on without it and
`headrace.kernel` serves its pure-Python twin (docs/decisions/0003-kernel-and-twin.md).
"""

from pathlib import Path

from setuptools import Extension, setup

# Where it was built is no part of what was built: two builds of one tree give the same bytes.
NO_PLACE = f"-ffile-prefix-map={Path(__file__).resolve().parent}=."

setup(
    ext_modules=[
        Extension(
            "headrace.kernel._native",
            sources=["src/headrace/kernel/_native.c"],
            extra_compile_args=[
                "-O3",
                "-std=c11",
                "-fvisibility=hidden",
                "-Wall",
                "-Wextra",
                NO_PLACE,
            ],
            optional=True,
        )
    ]
)
