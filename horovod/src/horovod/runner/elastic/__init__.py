"""Elastic jobs: how a rank learns that the hosts have changed."""
