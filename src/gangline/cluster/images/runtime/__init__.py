"""Real images from a container runtime: found, pulled, and unpacked into folders that containers share.

A runtime is asked for two things only, by its command line: the folders of an image's layers, and its
configuration. The container itself is run by runc below the pod's shim (``node/shim/oci.py``), in the
pod's own namespaces, so that everything else about a pod is as it is without a runtime; no daemon has to
stay for a running pod. Reading order: ``store`` (what a runtime offers), ``containerd``, ``docker`` (and
podman, which speaks the same), ``requirements``.
"""
