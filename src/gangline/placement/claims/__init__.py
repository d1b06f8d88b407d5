"""Claims: of volumes, which nodes they allow; of devices (``resource.k8s.io``), what pods ask for and get."""
