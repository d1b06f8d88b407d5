"""Progress in Prometheus' text format, and a small server for it on rank 0; standard library only.

Source: Prometheus' exposition format 0.0.4.
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from gangline.errors import UserError

if TYPE_CHECKING:
    from gangline.train.progress import ProgressReport

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(snapshot: ProgressReport | None) -> str:
    """Return the metrics of a training; only what is known is there."""
    if snapshot is None:
        return ""
    unit = "".join(letter if letter.isalnum() else "_" for letter in snapshot.unit.lower())
    rows = [
        ("steps_total", "counter", "Training steps done.", snapshot.step),
        ("steps_planned", "gauge", "Training steps in all.", snapshot.steps),
        ("ranks", "gauge", "Ranks of the job.", snapshot.ranks),
        (f"{unit}_per_second", "gauge", f"Rate of all ranks together, {snapshot.unit}.", snapshot.rate),
        ("loss", "gauge", "Loss of rank 0's last reported step.", snapshot.loss),
        ("remaining_seconds", "gauge", "Estimated time to the last step.", snapshot.eta_s),
    ]
    lines: list[str] = []
    for name, kind, help_text, value in rows:
        if value is not None:
            full = f"gangline_train_{name}"
            lines += [f"# HELP {full} {help_text}", f"# TYPE {full} {kind}", f"{full} {_number(value)}"]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if value != value:  # noqa: PLR0124 - the test for NaN
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.10g}"


class MetricsServer:
    """Serves the last snapshot at ``/metrics`` until closed."""

    def __init__(self, host: str, port: int) -> None:
        self.snapshot: ProgressReport | None = None
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_known = self.path.split("?")[0] in ("/", "/metrics")
                body = exposition(owner.snapshot).encode() if is_known else b"not found\n"
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay quiet: the output is the training's."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="gangline-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def open_metrics(place: str) -> MetricsServer | None:
    """Return a server at ``HOST:PORT`` or, for all addresses, ``PORT``; None when the port is taken.

    Raises:
        UserError: the place cannot be understood.
    """
    host, _, port = place.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UserError(f"metrics at `{place}`: write PORT or HOST:PORT, for example 127.0.0.1:9400")
    try:
        return MetricsServer(host.strip("[]"), int(port))
    except OSError as error:
        sys.stderr.write(f"gangline.train: no metrics at `{place}`: {error.strerror or error}\n")
        return None
