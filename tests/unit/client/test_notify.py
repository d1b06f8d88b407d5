"""Notices reach a command and a web address, and one that fails is said once."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from gangline.client.run.notify import Notifier, NotifyingView

SILENCE = {"kind": "silence", "rank": 1, "node": "node-2", "step": 7}


def test_command_gets_the_notice_in_variables_and_as_json(tmp_path: Path) -> None:
    notifier = Notifier(
        f'cat > {tmp_path}/body; echo "$GANGLINE_EVENT $GANGLINE_JOB" > {tmp_path}/words', print
    )
    notifier.tell("failed", "MPIJob default/train", "rank 1 ended")
    notifier.close()

    found = json.loads((tmp_path / "body").read_text())
    assert found == {"event": "failed", "job": "MPIJob default/train", "text": "rank 1 ended"}
    assert (tmp_path / "words").read_text() == "failed MPIJob default/train\n"


def test_web_address_gets_it_by_post() -> None:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    notifier = Notifier(f"http://127.0.0.1:{server.server_port}/hook", print)
    notifier.tell("succeeded", "MPIJob default/train", "ended with code 0")
    notifier.close()
    thread.join()
    server.server_close()

    assert json.loads(bodies[0])["event"] == "succeeded"


def test_notices_that_cannot_be_handed_over_are_said_once() -> None:
    said: list[str] = []
    notifier = Notifier("exit 3", said.append)
    notifier.tell("notice", "a", "b")
    notifier.close()
    notifier.tell("notice", "a", "c")
    notifier.close()

    assert len(said) == 1
    assert "--notify exit 3" in said[0]


def test_a_rank_that_keeps_others_waiting_is_told_and_progress_is_not() -> None:
    class Notifies(Notifier):
        def tell(self, event: str, job: str, text: str) -> None:
            told.append((event, text))

    class View:
        def record(self, job: object, record: object) -> None:
            shown.append(record)

    told: list[tuple[str, str]] = []
    shown: list[object] = []
    view = NotifyingView(View(), Notifies("true", print))
    view.record("job", {"kind": "progress", "step": 1})
    view.record("job", SILENCE)

    assert told == [("stalled", "rank 1 on node-2 keeps others waiting since step 7")]
    assert len(shown) == 2
