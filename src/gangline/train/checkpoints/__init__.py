"""Checkpoints: what a training writes so that it can go on where it was, file by file and rank by rank."""
