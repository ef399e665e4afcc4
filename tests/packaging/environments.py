"""Builds the distributions, and makes empty environments with one of them in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tomli
from packaging.requirements import Requirement
from packaging.version import Version

REPOSITORY = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")
_BUILD_TIMEOUT_S = 240
_RUN_TIMEOUT_S = 900

OLDEST, NEWEST = "lowest-direct", "highest"
"""How uv chooses the versions of what the package names: the lower bounds, or the newest that are admitted."""


def claimed_pythons() -> list[str]:
    """The minor versions in the classifiers of pyproject.toml, oldest first."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (REPOSITORY / "pyproject.toml").read_text())


def lower_bounds(minor: str, *extras: str) -> dict[str, Version]:
    """What pyproject.toml admits at least, by name, of what the package and these extras need on this Python."""
    project = tomli.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {
        requirement.name: Version(specifier.version)
        for requirement in map(Requirement, named)
        if requirement.marker is None or requirement.marker.evaluate({"python_version": minor})
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }


def find_python(minor: str) -> Path | None:
    """An interpreter of this minor version: on PATH, or installed by pyenv."""
    on_path = shutil.which(f"python{minor}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for candidate in [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{minor}.*/bin/python"))]:
        if _answers_as(candidate, minor):
            return candidate
    return None


def _answers_as(candidate: Path, minor: str) -> bool:
    asked = [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    return answer.stdout.strip() == minor  # a shim of pyenv for a version that is not chosen prints an error


def run(*command: str | Path, cwd: Path, timeout_s: float = _RUN_TIMEOUT_S) -> str:
    """What the command printed; an assertion with it if the command failed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stdout}"
    return ran.stdout


@dataclass(frozen=True)
class Distributions:
    """The files that a release uploads."""

    sdist: Path
    wheel: Path

    @property
    def version(self) -> str:
        """The version in the sdist's name."""
        return self.sdist.name.removeprefix("eos_client-").removesuffix(".tar.gz")


def build_distributions(into: Path) -> Distributions:
    """Build the sdist from this checkout, and the wheel from the sdist."""
    run(_UV, "build", "--quiet", "--out-dir", into, REPOSITORY, cwd=into, timeout_s=_BUILD_TIMEOUT_S)
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return Distributions(sdist, wheel)


def build_sdist(tree: Path, into: Path) -> Path:
    """Build the sdist of ``tree``."""
    run(_UV, "build", "--quiet", "--sdist", "--out-dir", into, tree, cwd=tree, timeout_s=_BUILD_TIMEOUT_S)
    (sdist,) = into.glob("*.tar.gz")
    return sdist


@dataclass(frozen=True)
class Environment:
    """An environment of its own, made in ``folder``."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, python: Path) -> Environment:
        """An empty environment of this interpreter."""
        run(_UV, "venv", "--quiet", "--no-python-downloads", "--python", python, folder, cwd=folder.parent)
        return cls(folder)

    def install(self, *requirements: str | Path, resolution: str = NEWEST) -> None:
        """Install the requirements with the oldest or newest versions of what they name."""
        resolved = ("--resolution", resolution)
        run(_UV, "pip", "install", "--quiet", "--python", self.python, *resolved, *requirements, cwd=self.folder)

    def install_package(self, distribution: Path, *extras: str, resolution: str = NEWEST) -> None:
        """Install the package from this file, with the oldest or newest versions of what it and these extras need.

        Of what a distribution needs, uv chooses the oldest only where it is asked for that by name. So it is given the
        same requirements from pyproject.toml, too.
        """
        by_name: list[str | Path] = []
        if resolution == OLDEST:
            by_name = ["--requirements", REPOSITORY / "pyproject.toml", *(f"--extra={extra}" for extra in extras)]
        self.install(f"{distribution}[{','.join(extras)}]" if extras else distribution, *by_name, resolution=resolution)

    def versions(self) -> dict[str, Version]:
        """What is installed, by name."""
        listed = run(_UV, "pip", "list", "--quiet", "--format=json", "--python", self.python, cwd=self.folder)
        return {each["name"]: Version(each["version"]) for each in json.loads(listed)}

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def run(self, *arguments: str | Path, cwd: Path) -> str:
        """What its interpreter printed, run in a folder outside of this tree."""
        return run(self.python, *arguments, cwd=cwd)


def cells() -> Iterator[tuple[str, str]]:
    """Every claimed Python with the oldest and with the newest dependencies."""
    for minor in claimed_pythons():
        yield minor, OLDEST
        yield minor, NEWEST
