"""How pods with addresses of their own reach what lies outside the machine, by address and by name."""
