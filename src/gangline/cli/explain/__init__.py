"""``gangline explain``: why a job waits and what would help; where it was placed and what that is worth."""
