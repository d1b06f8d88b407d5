"""Gangline: synchronous distributed training from one file, on one machine or any Kubernetes."""

__version__ = "0.1.0"
