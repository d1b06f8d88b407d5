"""Streams into the pods of any cluster: programs in containers, connections to ports."""
