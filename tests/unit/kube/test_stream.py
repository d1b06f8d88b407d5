"""A watch's bytes become events, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.kube import stream
from gangline.kube.errors import Gone, ServerError
from gangline.kube.stream import LineSplitter, read_event

line = st.binary(min_size=1, max_size=50).filter(lambda data: data.strip() and b"\n" not in data)


@given(lines=st.lists(line, max_size=10), tail=st.one_of(st.just(b""), line), data=st.data())
def test_lines_are_the_same_however_they_are_cut(
    lines: list[bytes], tail: bytes, data: st.DataObject
) -> None:
    text = b"".join(part + b"\n" for part in lines) + tail
    splitter, seen, start = LineSplitter(), [], 0
    while start < len(text):
        end = data.draw(st.integers(start + 1, len(text)))
        seen += splitter.feed(text[start:end])
        start = end

    assert seen == lines
    assert splitter.rest() == tail.strip()


def test_empty_lines_are_no_events() -> None:
    assert LineSplitter().feed(b"\n\r\na\n \n") == [b"a"]


def test_a_line_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "watch_line_bytes_max", 10)
    splitter = LineSplitter()
    splitter.feed(b"123456")
    with pytest.raises(ServerError, match="more than 10 bytes"):
        splitter.feed(b"789012")


def test_an_event_keeps_its_object_as_it_came() -> None:
    event = read_event(b'{"type":"ADDED","object":{"a": [1,  2]}}')

    assert (event.type, event.object) == ("ADDED", b'{"a": [1,  2]}')


@pytest.mark.parametrize("reason", ["Expired", "Gone"])
def test_an_error_event_is_raised(reason: str) -> None:
    text = (
        f'{{"type":"ERROR","object":{{"kind":"Status","code":410,"reason":"{reason}","message":"too old"}}}}'
    )
    with pytest.raises(Gone, match="too old"):
        read_event(text.encode())


@pytest.mark.parametrize("text", [b"x", b"{}", b'{"type":1,"object":{}}', b"\xff"])
def test_a_line_that_is_no_event_is_refused(text: bytes) -> None:
    with pytest.raises(ServerError, match="no event"):
        read_event(text)
