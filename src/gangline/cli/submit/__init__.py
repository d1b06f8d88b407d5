"""``gangline submit``: jobs in arena's words."""
