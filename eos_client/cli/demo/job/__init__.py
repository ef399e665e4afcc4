"""The job that the demo's workers run. Each worker loads it from its file, as it would load a user's."""
