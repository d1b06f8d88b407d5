"""One pod on its node: from its binding to its end."""
