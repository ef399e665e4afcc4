"""The ready loop around the wrappers."""

from eos_client.loop.exactly_once_loop import ExactlyOnceLoop

__all__ = ["ExactlyOnceLoop"]
