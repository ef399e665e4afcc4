"""``python -m eos_client``: the same program as the ``eos-client`` script."""

from __future__ import annotations

from eos_client.cli import main

if __name__ == "__main__":
    main()
