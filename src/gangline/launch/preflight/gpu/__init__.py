"""What a machine needs before a program finds its GPUs, and what is missing. Standard library only."""
