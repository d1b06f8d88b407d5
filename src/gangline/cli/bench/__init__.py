"""``gangline bench``."""
