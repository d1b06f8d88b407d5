"""The built-in controllers of the one-machine cluster: Job, garbage collection, namespaces, endpoints."""
