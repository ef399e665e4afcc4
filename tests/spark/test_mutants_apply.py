"""Every mutant of the sink finds what it takes out: its own test, which needs a cluster, runs with the long ones."""

import subprocess
import sys

import pytest

from tests.spark.rig.mutants import Mutant

TAKES_OUT = """
import sys
from tests.spark.rig.mutants import Mutant, take_out_of_driver, take_out_of_worker
take_out_of_driver(Mutant[sys.argv[1]])
take_out_of_worker(Mutant[sys.argv[1]])
"""


@pytest.mark.parametrize("mutant", Mutant)
def test_what_a_mutant_takes_out_is_there(mutant, request):
    ran = subprocess.run(
        [sys.executable, "-c", TAKES_OUT, mutant.name],
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
