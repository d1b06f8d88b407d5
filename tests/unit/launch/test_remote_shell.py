"""The remote shell's command line and names; the local image's name."""

import socket
import subprocess
import sys
import threading

import pytest

from gangline.cluster.images.local_images import LocalImages, image_name
from gangline.launch import remote_shell
from gangline.launch.remote_shell import aliases, split_arguments


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["host", "cmd"], ("host", ["cmd"])),
        (["-x", "host", "cmd", "-n"], ("host", ["cmd", "-n"])),
        (["-o", "A=b", "-q", "-p", "22", "user@host", "a b"], ("host", ["a b"])),
        (["-x", "--", "host", "cmd"], ("host", ["cmd"])),
    ],
)
def test_options_before_the_host_are_passed_over(arguments, want):
    assert split_arguments(arguments) == want


@pytest.mark.parametrize("arguments", [[], ["host"], ["-x", "host"]])
def test_command_line_without_host_or_command_is_refused(arguments):
    with pytest.raises(ValueError, match="usage"):
        split_arguments(arguments)


@pytest.mark.parametrize(
    "host",
    ["w-0.job", "w-0.job.ns", "w-0.job.ns.svc", "w-0.job.ns.svc.cluster.local", "w-0.job.ns.svc.example.org"],
)
def test_every_qualified_form_leads_to_the_listed_name(host):
    assert "w-0.job" in aliases(host, "ns")


@pytest.mark.parametrize(
    "reference",
    [
        "gangline/base",
        "gangline/base:v1",
        "docker.io/gangline/base",
        "localhost:5000/gangline/base:v1@sha256:00",
    ],
)
def test_base_image_is_found_under_any_tag_and_registry(reference):
    assert image_name(reference) == "gangline/base"


def test_other_images_are_not_on_this_machine():
    images = LocalImages()

    assert images.find("python:3.12") is None


def test_wait_is_told_of_only_where_there_was_one(tmp_path):
    environment = {"GANGLINE_NAMES": str(tmp_path), "GANGLINE_RSH_WAIT_S": "0.05"}

    def said():
        argv = [sys.executable, "-I", "-S", remote_shell.__file__, "w-0", "true"]
        return subprocess.run(
            argv, check=False, env=environment, capture_output=True, text=True, timeout=60
        ).stderr

    assert "cannot run on w-0 within 0 s: no pod answers to `w-0`" in said()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as pod:
        pod.bind(str(tmp_path / "w-0"))
        pod.listen()
        ender = threading.Thread(target=lambda: pod.accept()[0].close())
        ender.start()
        told = said()
        ender.join()
    assert told.startswith("gangline-rsh: cannot run on w-0: ")
