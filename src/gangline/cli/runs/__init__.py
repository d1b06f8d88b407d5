"""``gangline runs``: what ran, how it ended, and what it said of itself."""
