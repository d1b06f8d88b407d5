"""Names of our own in ``resource.k8s.io``."""

from __future__ import annotations

DRIVER = "gpu.gangline.dev"
"""The DRA driver of GPUs, and the device class that stands for all of its healthy ones."""

DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER, "labels": {"app.kubernetes.io/part-of": "gangline"}},
    "spec": {
        "selectors": [
            {"cel": {"expression": f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].healthy'}}
        ]
    },
}
