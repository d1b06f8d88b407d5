"""What the wires are: link graphs of nodes and racks, the bandwidth and step-time model, known machines."""
