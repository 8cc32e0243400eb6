"""The build: maturin's, but that the laboratory, which no index has, is the one beside this folder.

An extra can name another package by a whole path only, which is known when it is built.
"""

import pathlib

from maturin import *  # noqa: F403
from maturin import prepare_metadata_for_build_wheel as _prepare

LAB = pathlib.Path(__file__).resolve().parent / "lab"


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    made = _prepare(metadata_directory, config_settings)
    file = pathlib.Path(metadata_directory) / made / "METADATA"
    lines = file.read_text().splitlines(keepends=True)
    wanted = "Requires-Dist: tidegate-lab "
    file.write_text(
        "".join(line.replace(wanted, f"{wanted}@ {LAB.as_uri()} ", 1) for line in lines)
    )
    return made
