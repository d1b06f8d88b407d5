"""Shell: runs ``placement/`` against a Kubernetes API and binds."""
