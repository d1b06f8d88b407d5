"""Not offered: `horovod.tensorflow`."""

raise ImportError(
    "horovod.tensorflow is not offered by Gangline, whose horovod is for PyTorch: use "
    "horovod.torch, or install Horovod itself for TensorFlow"
)
