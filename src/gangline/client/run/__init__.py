"""From a program, function or manifest to a job that runs, and to how it ends."""
