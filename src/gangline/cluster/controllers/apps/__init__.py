"""The controllers of apps/v1: each a pure plan; ``workloads.py`` carries all of them out."""
