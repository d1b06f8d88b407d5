"""Addresses and names of pods, their bridge, and their way out of the machine."""
