"""Ranks whose number changes while they train."""
