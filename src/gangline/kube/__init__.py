"""The one seam to a Kubernetes API: client, watch, cache, work queue, kubeconfig, events."""
