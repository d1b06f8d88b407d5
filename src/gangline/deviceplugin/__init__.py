"""The device plugin of GPUs: what a kubelet is told of them, and what a container that gets some finds.

Both ends of the kubelet's API v1beta1 are here: ``plugin`` serves GPUs, ``kubelet`` has plugins register.
grpcio and protobuf are imported in this package alone.
"""
