"""Builds the distributions, and makes empty environments with one of them in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")
_BUILD_TIMEOUT_S = 240
_RUN_TIMEOUT_S = 900

OLDEST, NEWEST = "lowest-direct", "highest"
"""How uv chooses the versions of what the package names: the lower bounds, or the newest that are admitted."""


def claimed_pythons() -> list[str]:
    """The minor versions in the classifiers of pyproject.toml, oldest first."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (REPOSITORY / "pyproject.toml").read_text())


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


def build_distributions(into: Path) -> Distributions:
    """Build the sdist from this checkout, and the wheel from the sdist."""
    run(_UV, "build", "--quiet", "--out-dir", into, REPOSITORY, cwd=into, timeout_s=_BUILD_TIMEOUT_S)
    (sdist,), (wheel,) = into.glob("*.tar.gz"), into.glob("*.whl")
    return Distributions(sdist, wheel)


@dataclass(frozen=True)
class Environment:
    """An environment of its own, made in ``folder``."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, python: Path) -> Environment:
        """An empty environment of this interpreter."""
        run(_UV, "venv", "--quiet", "--no-python-downloads", "--python", python, folder, cwd=folder.parent)
        return cls(folder)

    def install(self, *requirements: str, resolution: str = NEWEST) -> None:
        """Install the requirements with the oldest or newest versions of what they name."""
        resolved = ("--resolution", resolution)
        run(_UV, "pip", "install", "--quiet", "--python", self.python, *resolved, *requirements, cwd=self.folder)

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
