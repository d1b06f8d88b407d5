"""Not offered: `horovod.keras`."""

raise ImportError(
    "horovod.keras is not offered by Gangline, whose horovod is for PyTorch: use horovod.torch, or "
    "install Horovod itself for Keras"
)
