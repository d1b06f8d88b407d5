"""The Python client: jobs from a program or a notebook, on this machine or a cluster of a kubeconfig."""
