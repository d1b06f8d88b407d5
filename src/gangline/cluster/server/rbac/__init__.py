"""Roles and bindings: what they allow, to whom, and those that every cluster has."""
