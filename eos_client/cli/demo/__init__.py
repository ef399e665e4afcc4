"""The demo: a real cluster, real processes, a kill, and a verdict read back from the log."""
