"""What the wires are: link graphs of nodes and racks, the bandwidth and step-time model, known machines.

Pure: values in, values out. Reading order: ``links`` (names), ``machine`` (one node), ``known`` (machines by
name), ``annotation``, ``smi``, ``nvml`` (machines read from a node), ``wires`` and ``rings`` (what the links
carry together), ``choices`` (which GPUs to take), ``network`` (racks and blocks), ``all_reduce`` and
``step_time`` (how long it takes), ``rates`` (every constant with its source).
"""
