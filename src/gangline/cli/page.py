"""``gangline page``: the web page of a cluster, in the browser of this machine."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from gangline.cli.options.target import target_options
from gangline.cli.output import say
from gangline.client.target import ClusterTarget


@click.command("page")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback.  [default: a free one]"
)
@click.option("--browser/--no-browser", default=True, help="Open the link in a browser, where there is one.")
@target_options()
def command(port: int, browser: bool, target: ClusterTarget) -> None:
    """Open the web page: jobs, logs, curves, nodes, the queue.

    It listens on this machine alone. The link is good for one browser and two minutes; the page goes on by
    itself until nobody has looked at it for ten minutes, or the cluster ends.
    """
    from gangline.cli.serve.page import page_link

    target.check_up()
    link = page_link(target, port)
    print(link)
    if browser and _can_open():
        say(
            "opening it in your browser" if webbrowser.open(link) else "hint: open the link in a browser here"
        )


def _can_open() -> bool:
    """Whether there is a browser with a window; one of a terminal would take the terminal over."""
    try:
        return not isinstance(webbrowser.get(), webbrowser.GenericBrowser) or _has_display()
    except webbrowser.Error:
        return False


def _has_display() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
