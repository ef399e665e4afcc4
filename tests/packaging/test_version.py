"""The version is the tag in git; a tree without git builds, too, and a package that nobody installed has none."""

import shutil
import subprocess
import sys

import pytest

from tests.packaging.environments import REPOSITORY, build_sdist

PACKED = ["eos_client", "integration", "listeners", "examples"]
FILES = ["pyproject.toml", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", ".gitignore"]
TAGGED = [
    *(["init", "--quiet"], ["add", "."]),
    ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", "all"],
    ["tag", "v3.2.1"],
]


@pytest.fixture
def tree(tmp_path):
    """What is packed, as an archive of a code host holds it."""
    for folder in PACKED:
        shutil.copytree(
            REPOSITORY / folder, tmp_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in FILES:
        shutil.copy(REPOSITORY / file, tmp_path)
    return tmp_path


@pytest.mark.soak
def test_a_tree_without_git_builds_and_one_with_a_tag_builds_as_its_version(tree):
    assert build_sdist(tree, tree / "dist").name == "eos_client-0.1.0.dev0.tar.gz"
    for command in TAGGED:
        subprocess.run(["git", *command], cwd=tree, check=True)
    assert build_sdist(tree, tree / "tagged").name == "eos_client-3.2.1.tar.gz"


def test_a_folder_on_the_path_that_nobody_installed_has_a_version_of_no_release(tmp_path):
    shutil.copytree(REPOSITORY / "eos_client", tmp_path / "eos_client", symlinks=True)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", "import eos_client; print(eos_client.__version__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "0+not.installed\n", ran.stderr
