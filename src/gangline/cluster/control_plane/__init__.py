"""Kubernetes' control plane under the one-machine cluster: its programs, their options, who may do what."""
