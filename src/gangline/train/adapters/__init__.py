"""Callbacks for trainers of others; each is imported with its trainer."""
