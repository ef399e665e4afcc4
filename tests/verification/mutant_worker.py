"""A worker of the client with one mistake: it keeps records that it had read before it goes back.

    python -m tests.verification.mutant_worker run ...

Where the mutants of the simulated cluster show that the stories find mistakes, this shows that runs on brokers do.
"""

from __future__ import annotations

from eos_client.cli import main
from tests.clients.mutants import MUTANTS

MISTAKE = "records read before a rewind are kept"

if __name__ == "__main__":
    (mutant,) = [each for each in MUTANTS if each.name == MISTAKE]
    with mutant.patch():
        main()
