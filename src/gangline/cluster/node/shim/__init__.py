"""The process that watches over one pod. Standard library only: it runs as ``python -I -S``.

Reading order: ``fork_server`` (forks one shim for each pod), ``server`` (the shim's loop and its protocol),
``spawn`` (from a container description to a running process), ``rootfs`` and ``network_interface`` (what it
sees), ``control_channel`` and ``attached`` (who is connected), ``logfile`` (CRI logs), ``durable`` (what
outlives a loss of power), ``processes`` (who belongs to the pod), ``syscalls``.
"""
