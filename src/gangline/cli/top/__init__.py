"""``gangline top``: GPUs of nodes and of jobs, in arena's columns."""
