"""Integrations with frameworks and supervisors; each framework needs its own extra."""

if __name__ != "eos_client.integration":
    raise ImportError(f"import eos_client.integration, not {__name__}: a second copy's classes would not be the same")
