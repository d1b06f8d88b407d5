"""What the wires of a cluster's nodes carry, measured by pods."""
