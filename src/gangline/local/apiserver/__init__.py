"""The Kubernetes API of the one-machine cluster, over HTTPS and a Unix socket."""
