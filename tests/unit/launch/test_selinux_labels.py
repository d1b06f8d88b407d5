"""The SELinux labels that GPUs need; the table is that of OpenShift's guide."""

from __future__ import annotations

from pathlib import Path

from gangline.launch.preflight.gpu.selinux_labels import LabelledFile, is_on, labelled_files


def test_files_of_the_table_are_told_with_the_type_that_they_need(tmp_path: Path) -> None:
    for path in ("dev/nvidia0", "dev/nvidiactl", "var/lib/kubelet/device-plugins/kubelet.sock"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    types = {"nvidia0": "xserver_misc_device_t", "nvidiactl": "device_t", "kubelet.sock": "container_file_t"}

    found = list(labelled_files(tmp_path, lambda path: types[path.name]))

    assert found == [
        LabelledFile("/dev/nvidia0", "xserver_misc_device_t", "xserver_misc_device_t"),
        LabelledFile("/dev/nvidiactl", "xserver_misc_device_t", "device_t"),
        LabelledFile("/usr/bin/nvidia-*", "xserver_exec_t", None),
        LabelledFile("/var/lib/kubelet/device-plugins/kubelet.sock", "container_file_t", "container_file_t"),
    ]
    assert [file.is_wrong for file in found] == [False, True, False, False]


def test_selinux_is_on_where_its_file_system_says_so(tmp_path: Path) -> None:
    assert not is_on(tmp_path)
    (tmp_path / "sys" / "fs" / "selinux").mkdir(parents=True)
    (tmp_path / "sys" / "fs" / "selinux" / "enforce").write_text("0")

    assert is_on(tmp_path)
