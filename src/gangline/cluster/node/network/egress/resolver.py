"""How pods with addresses of their own look names up: their ``resolv.conf``, and who answers.

The machine's files are read again when they change; what pods have mounted is then rewritten in place.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from gangline.cluster.node.network.egress.dns_message import Question
from gangline.cluster.node.network.egress.forwarder import Forwarder, Upstream
from gangline.cluster.node.network.egress.names import answer_of, parse_hosts
from gangline.cluster.node.network.egress.resolv_conf import (
    ResolvConf,
    parse_resolv_conf,
    reachable_from_pods,
    render_resolv_conf,
)
from gangline.cluster.node.network.host_names import PodHost, rewrite_in_place
from gangline.cluster.node.network.services import ClusterService

RESOLV_CONF = Path("/etc/resolv.conf")
HOSTS = Path("/etc/hosts")

_REFUSING = (
    "# names of pods are in /etc/hosts; a name server that refuses at once beats one that never answers\n"
    "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
)
_COMMENT = "names of pods are in /etc/hosts; this asks the machine's name servers for all others"

T = TypeVar("T")


class Parsed(Generic[T]):
    """What a file says, read again when it has changed; a file that cannot be read is an empty one."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        self._path = path
        self._parse = parse
        self._stamp: tuple[int, int, int] | None = None
        self._value = parse("")

    def __call__(self) -> T:
        """Return it. Cost: one ``stat``."""
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                self._value = self._parse(self._path.read_text(encoding="utf-8", errors="replace"))
                self._stamp = stamp
        except OSError:
            self._value, self._stamp = self._parse(""), None
        return self._value


class Resolver:
    """See the module's text.

    Args:
        path: the pods' ``resolv.conf``.
        address: of the bridge, the first of ``subnet``.
        subnet: addresses of pods.
        hosts: returns all pods.

    Attributes:
        refusal: why pods ask nobody for names of the outside, empty when they do.
        services: returns all services of the cluster.
    """

    def __init__(
        self, path: Path, address: str, subnet: ipaddress.IPv4Network, hosts: Callable[[], Iterable[PodHost]]
    ) -> None:
        self.path = path
        self.refusal = ""
        self.services: Callable[[], Iterable[ClusterService]] = tuple
        self._address = address
        self._subnet = subnet
        self._hosts = hosts
        self._machine = Parsed(RESOLV_CONF, parse_resolv_conf)
        self._machine_hosts = Parsed(HOSTS, parse_hosts)
        self._written = ""
        self._forwarder: Forwarder | None = None

    def refuse_all(self) -> None:
        """Have names of the outside refused at once: there is no way to it."""
        self._write(_REFUSING)

    async def open(self) -> None:
        """Answer pods; where another program has the port, name the machine's servers to them instead."""
        upstream = Upstream(self._servers)
        forwarder = Forwarder(self._address, self._subnet, self._answer, upstream)
        try:
            await forwarder.open()
            self._forwarder = forwarder
        except OSError as error:
            self.refusal = f"cannot answer at {self._address}, port 53: {error.strerror or error}"
            if servers := reachable_from_pods(self._machine()):
                self.refusal = ""
                self._write(render_resolv_conf(replace(self._machine(), nameservers=servers), _COMMENT))
            else:
                self.refuse_all()
            return
        self._servers()

    async def close(self) -> None:
        """Stop answering."""
        if self._forwarder is not None:
            await self._forwarder.close()

    def _servers(self) -> tuple[str, ...]:
        """Return the machine's name servers, and have pods search where the machine does."""
        conf: ResolvConf = self._machine()
        self._write(render_resolv_conf(replace(conf, nameservers=(self._address,)), _COMMENT))
        return tuple(server for server in conf.nameservers if server != self._address)

    def _answer(self, question: Question, asker: str) -> bytes | None:
        machine_hosts = self._machine_hosts()
        return answer_of(question, asker, self._hosts(), machine_hosts, self._subnet, self.services())

    def _write(self, text: str) -> None:
        if text != self._written:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            rewrite_in_place(self.path, text)
            self._written = text


def of_the_machine() -> Path | None:
    """Return the file behind the machine's ``/etc/resolv.conf``, which often is a link into ``/run``."""
    try:
        return RESOLV_CONF.resolve(strict=True)
    except OSError:
        return None
