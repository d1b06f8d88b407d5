"""``gangline exec``, ``shell`` and ``port-forward``: what one does in a running pod of a job."""
