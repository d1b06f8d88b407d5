"""The benchmark programs that users run as jobs."""
