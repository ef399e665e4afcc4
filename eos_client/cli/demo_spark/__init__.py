"""The Spark demo: a real Spark, a killed executor, a killed driver, and a verdict read back from the log."""
