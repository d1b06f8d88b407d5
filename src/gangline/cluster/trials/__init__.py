"""Files of other clusters tried on this machine: what they lack here, and what stands in its place."""
