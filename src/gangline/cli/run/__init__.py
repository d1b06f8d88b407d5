"""``gangline run``: manifests, or a command on N ranks, from start to result."""
