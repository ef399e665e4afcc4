"""The job that the demo's workers run. Each worker loads it by its file, as an application's own would be."""
