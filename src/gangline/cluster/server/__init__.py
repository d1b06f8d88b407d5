"""The API server of the one-machine cluster, and what its requests are answered from."""
