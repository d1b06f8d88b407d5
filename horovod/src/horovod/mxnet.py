"""Not offered: `horovod.mxnet`."""

raise ImportError(
    "horovod.mxnet is not offered by Gangline, whose horovod is for PyTorch: use horovod.torch, or "
    "install Horovod itself for MXNet"
)
