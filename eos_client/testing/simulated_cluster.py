"""The names of `eos_client.testing.simulator`, for imports that were written before it was a folder."""

from eos_client.testing.simulator import *  # noqa: F403  # its public names, all of them
