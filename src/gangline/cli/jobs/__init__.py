"""Names of jobs on a command line."""
