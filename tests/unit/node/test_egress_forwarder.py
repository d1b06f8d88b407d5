"""The pods' name server: it passes on what it does not know, one server after the other, within bounds."""

import asyncio
import ipaddress
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from gangline.cluster.node.network.egress import forwarder as module
from gangline.cluster.node.network.egress.dns_message import Question, write_answer
from gangline.cluster.node.network.egress.forwarder import Forwarder, Upstream

LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
SERVER_FAILURE = 2
LIMIT_S = 30.0


def query(number: int, name: bytes) -> bytes:
    labels = bytes([len(name)]) + name + b"\0"
    return struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!2H", 1, 1)


class NameServer(asyncio.DatagramProtocol):
    """Answers ``echo``: the question with a mark; says nothing where it is told to be silent."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_silent = False

    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data, addr) -> None:
        self.asked += 1
        if not self.is_silent:
            self.transport.sendto(b"??" + data, addr)  # a forged one first: another id
            self.transport.sendto(data + b"!", addr)


class Rig:
    def __init__(self, server: NameServer, port: int, forwarder: Forwarder, upstream: Upstream) -> None:
        self.server, self.port, self.forwarder, self.upstream = server, port, forwarder, upstream

    async def ask(self, message: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as own:
            own.connect(("127.0.0.1", self.port))
            await loop.sock_sendall(own, message)
            async with asyncio.timeout(LIMIT_S):
                return await loop.sock_recv(own, 65535)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(module, "SERVER_TIMEOUT_S", 0.05)
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.2", 0))
    upstream = Upstream(lambda: ("127.0.0.3", "127.0.0.2"), transport.get_extra_info("sockname")[1])

    async def back(reader, writer):
        length = await reader.readexactly(2)
        message = await reader.readexactly(int.from_bytes(length, "big"))
        writer.write(struct.pack("!H", len(message) + 1) + message + b"!")
        writer.close()

    stream = await asyncio.start_server(back, "127.0.0.2", upstream.port)

    def known(question: Question, asker: str) -> bytes | None:
        return write_answer(question, addresses=["10.0.0.9"]) if question.name == "known" else None

    forwarder = Forwarder("127.0.0.1", LOOPBACK, known, upstream, port=free_port())
    await forwarder.open()
    yield Rig(server, forwarder._port, forwarder, upstream)
    await forwarder.close()
    transport.close()
    stream.close()


async def test_question_is_passed_on_as_it_came_to_the_first_name_server_that_answers(rig):
    message = query(7, b"outside") + b"further records"

    assert await rig.ask(message) == message + b"!"


async def test_what_is_known_is_not_passed_on(rig):
    answer = await rig.ask(query(7, b"known"))

    assert answer.endswith(socket.inet_aton("10.0.0.9"))
    assert rig.server.asked == 0


async def test_long_questions_go_by_stream_and_several_in_one_connection(rig):
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    for number in (1, 2):
        message = query(number, b"outside")
        writer.write(struct.pack("!H", len(message)) + message)
        async with asyncio.timeout(LIMIT_S):
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            assert await reader.readexactly(length) == message + b"!"
    writer.close()


async def test_silence_is_told_and_the_next_question_does_not_wait_for_it(rig):
    rig.server.is_silent = True
    assert (await rig.ask(query(7, b"outside")))[3] & 0xF == SERVER_FAILURE
    asked = rig.server.asked

    assert (await rig.ask(query(8, b"outside")))[3] & 0xF == SERVER_FAILURE

    assert rig.server.asked == asked


async def test_one_lost_question_refuses_no_other(rig):
    await rig.ask(query(6, b"outside"))
    rig.server.is_silent = True
    await rig.ask(query(7, b"outside"))
    rig.server.is_silent = False

    assert (await rig.ask(query(8, b"outside"))).endswith(b"!")


async def test_pod_that_asks_without_end_is_refused_beyond_a_bound(rig, monkeypatch):
    monkeypatch.setattr(module, "WAITING_OF_ONE_POD_MAX", 3)
    monkeypatch.setattr(module, "SERVER_TIMEOUT_S", LIMIT_S)
    rig.server.is_silent = True
    asking = [asyncio.create_task(rig.ask(query(number, b"outside"))) for number in range(10)]

    done, waiting = await asyncio.wait(asking, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 7:
        more, waiting = await asyncio.wait(waiting, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        assert more
        done |= more

    assert {task.result()[3] & 0xF for task in done} == {SERVER_FAILURE}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_strangers_are_not_answered(rig):
    rig.forwarder._subnet = ipaddress.IPv4Network("10.0.0.0/8")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await rig.ask(query(7, b"known"))


async def test_nonsense_on_a_stream_ends_the_connection(rig):
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(b"\0\3abc")

    async with asyncio.timeout(LIMIT_S):
        assert await reader.read() == b""
    writer.close()
