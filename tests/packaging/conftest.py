"""The distributions, built once for all tests of this folder."""

import pytest

from tests.packaging.environments import build_distributions


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    return build_distributions(tmp_path_factory.mktemp("distributions"))
