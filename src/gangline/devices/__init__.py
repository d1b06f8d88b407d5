"""The GPUs of a machine: find them, name their links, count them, hand them out; simulated ones."""
