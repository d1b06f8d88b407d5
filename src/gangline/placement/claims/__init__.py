"""Claims of devices (``resource.k8s.io``): what pods ask for by them, as GPUs that placement knows."""
