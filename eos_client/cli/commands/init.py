"""``eos-client init``: its options. :mod:`eos_client.cli.project` does the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eos_client.cli.options import Verbose
from eos_client.cli.project import create_project
from eos_client.cli.reporting import reported


def init_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder, the consumer group and the Kubernetes objects.")
    ],
    verbose: Verbose = False,
) -> None:
    """Start a project: a worker, its test, an image, manifests, a dashboard and alerts, in a new folder.

    The name of each file is printed on stdout. Nothing that exists is changed.
    """
    with reported(verbose=verbose):
        for path in create_project(name, Path()):
            print(path)
        print(
            f"eos-client: next: cd {name}, pip install -r requirements-test.txt, python -m pytest",
            file=sys.stderr,
        )
