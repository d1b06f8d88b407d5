"""Kinds as typed values: own kinds whole, Kubernetes kinds as the subset that we read. Pure."""
