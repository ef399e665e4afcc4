"""Rebalance listeners: ours, which feeds the commit gate, around the application's own callbacks."""

if __name__ != "eos_client.listeners":
    raise ImportError(f"import eos_client.listeners, not {__name__}: a second copy's classes would not be the same")

from eos_client.listeners.compose import ApplicationCallbacks, ComposedListener
from eos_client.listeners.revocation import RevocationListener

__all__ = ["ApplicationCallbacks", "ComposedListener", "RevocationListener"]
