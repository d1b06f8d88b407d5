"""Shell: runs ``jobs/`` against a Kubernetes API."""
