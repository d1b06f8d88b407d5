"""``gangline logs``: a container's log as people read it, and the bar below it."""
