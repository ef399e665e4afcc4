"""ExactlyOnceLoop: the complete consume-transform-produce loop."""

from eos_client.loop.exactly_once_loop import ExactlyOnceLoop

__all__ = ["ExactlyOnceLoop"]
