"""ExactlyOnceLoop: the complete consume-transform-produce loop; AsyncExactlyOnceLoop runs it for an event loop."""

from eos_client.loop.async_loop import AsyncExactlyOnceLoop
from eos_client.loop.exactly_once_loop import ExactlyOnceLoop

__all__ = ["AsyncExactlyOnceLoop", "ExactlyOnceLoop"]
