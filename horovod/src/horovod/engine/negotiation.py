"""Which names are ready on all ranks: the coordinator's core. Pure: messages in, messages out.

A name that the ranks agreed on before is a bit, and a rank's message is then one integer: which names are
ready
is an AND over the ranks. A name that is new, or whose shape changed, is a whole request. While a rank has
joined
or is gone every bit counts as its request, so that one piece of code decides those rare cases.

Source: the protocol of Horovod's controller and response cache, with events in place of cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from horovod.engine.agreement import (
    ADD_SET,
    JOIN,
    LEAVE,
    REMOVE_SET,
    Agreement,
    Key,
    Request,
    agree,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What every rank does next, in this order: names by their bits, lowest first, then the agreements."""

    bits: int = 0
    agreements: tuple[Agreement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bits or self.agreements)


def set_bits(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Coordinator:
    """Knows what every rank is ready for.

    Args:
        size: number of ranks.
        capacity: how many names are remembered; later ones are negotiated whole each time.
    """

    def __init__(self, size: int, capacity: int) -> None:
        self.size = size
        self.capacity = capacity
        self.sets: dict[int, tuple[int, ...]] = {0: tuple(range(size))}
        self._next_set = 1
        self._ready = [0] * size
        self._set_bits: dict[int, int] = {0: 0}
        self._numbers: dict[Key, int] = {}
        self._remembered: list[dict[int, Request]] = []
        self._open: dict[Key, dict[int, Request]] = {}
        self._open_bits = 0
        self._joined: list[int] = []
        self._gone: dict[int, str] = {}

    def receive(self, rank: int, bits: int, requests: Sequence[Request]) -> Decision:
        """Take a rank's message and return what follows from it.

        Args:
            rank: who says it.
            bits: names that it is ready for, by their numbers.
            requests: names that were not agreed on yet, or have changed.
        """
        touched: list[Key] = []
        for request in requests:
            if request.kind == JOIN:
                self._joined.append(rank)
            elif request.kind == LEAVE:
                self._gone.setdefault(rank, request.name)
            else:
                self._open_request(rank, request)
                touched.append(request.key)
        if self._joined or self._gone:
            for other, known in enumerate(self._ready):
                self._open_known(other, known, touched)
                self._ready[other] = 0
            self._open_known(rank, bits, touched)
            touched = list(self._open)
        else:
            self._open_known(rank, bits & self._open_bits, touched)
            self._ready[rank] |= bits & ~self._open_bits
        agreements = []
        for key in touched:  # which grows where a process set is removed
            if (made := self._decide(key, touched)) is not None:
                agreements.append(made)
        if self._joined and len({*self._joined, *self._gone}) == self.size:
            agreements.append(Agreement(Request("join", JOIN), answer=self._joined[-1]))
            self._joined = []
        return Decision(self._take_ready(), tuple(agreements))

    def waiting(self) -> dict[str, list[int]]:
        """Return the ranks that names wait for."""
        found = {
            name: [rank for rank in self.sets[number] if rank not in requests and rank not in self._joined]
            for (number, name), requests in self._open.items()
        }
        some = 0
        for bits in self._ready:
            some |= bits
        for number in set_bits(some):
            request = next(iter(self._remembered[number].values()))
            members = self.sets[request.process_set]
            found[request.name] = [rank for rank in members if not self._ready[rank] >> number & 1]
        return found

    def _open_request(self, rank: int, request: Request) -> None:
        """Note a whole request; what others said of the name by its bit becomes whole too."""
        key = request.key
        if key not in self._open:
            self._open[key] = {}
            number = self._numbers.get(key)
            if number is not None:
                bit = 1 << number
                self._open_bits |= bit
                for other, known in enumerate(self._ready):
                    if known & bit:
                        self._open[key][other] = self._remembered[number][other]
                        self._ready[other] = known & ~bit
        self._open[key][rank] = request

    def _open_known(self, rank: int, bits: int, touched: list[Key]) -> None:
        for number in set_bits(bits):
            request = self._remembered[number][rank]
            self._open_request(rank, request)
            touched.append(request.key)

    def _decide(self, key: Key, touched: list[Key]) -> Agreement | None:
        """Return what a name's requests lead to, None while ranks are missing."""
        requests = self._open.get(key)
        if requests is None:
            return None
        members = self.sets.get(key[0], ())
        gone = {rank: reason for rank, reason in self._gone.items() if rank in members}
        if not gone and any(rank not in requests and rank not in self._joined for rank in members):
            return None
        del self._open[key]
        number = self._numbers.get(key, -1)
        if number >= 0:
            self._open_bits &= ~(1 << number)
        first = next(iter(requests.values()))
        if key[0] not in self.sets:
            return Agreement(first, error=f"{first.kind} {first.name}: process set {key[0]} was removed")
        if gone:
            reasons = "; ".join(f"rank {rank} {reason}" for rank, reason in gone.items())
            return Agreement(first, error=f"{first.kind} {first.name}: {reasons}")
        made = agree(requests, members, self._joined)
        if made.error:
            return made
        if made.request.kind in (ADD_SET, REMOVE_SET):
            return self._change_sets(made, touched)
        return self._remember(key, made, requests, members)

    def _remember(
        self, key: Key, made: Agreement, requests: dict[int, Request], members: tuple[int, ...]
    ) -> Agreement:
        if not made.request.keep or len(requests) < len(members):
            return made
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= self.capacity:
                return made
            number = self._numbers[key] = len(self._remembered)
            self._remembered.append({})
            self._set_bits[key[0]] |= 1 << number
        self._remembered[number] = requests
        return replace(made, number=number)

    def _change_sets(self, made: Agreement, touched: list[Key]) -> Agreement:
        ranks = made.request.splits
        known = next((number for number, members in self.sets.items() if members == ranks), None)
        if made.request.kind == REMOVE_SET:
            number = made.request.root
            if number == 0 or number not in self.sets:
                return replace(made, error=f"process set {number} cannot be removed")
            self._remove_set(number, touched)
            return replace(made, answer=number)
        if known is not None:
            return replace(made, error=f"process set {known} has the ranks {list(ranks)} already")
        if not ranks or len(set(ranks)) < len(ranks) or not 0 <= min(ranks) <= max(ranks) < self.size:
            return replace(made, error=f"{list(ranks)} is no set of ranks of a job with {self.size}")
        number = self._next_set
        self._next_set += 1
        self.sets[number] = ranks
        self._set_bits[number] = 0
        return replace(made, answer=number)

    def _remove_set(self, number: int, touched: list[Key]) -> None:
        """Forget a process set. What its ranks wait for, and ask for before they hear of it, is an error."""
        del self.sets[number]
        for key in [key for key in self._numbers if key[0] == number]:
            del self._numbers[key]
        bits = self._set_bits.pop(number)
        self._open_bits |= bits
        for rank, known in enumerate(self._ready):
            self._open_known(rank, known & bits, touched)
            self._ready[rank] &= ~bits
        touched += [key for key in self._open if key[0] == number]

    def _take_ready(self) -> int:
        """Return the bits that are set on all ranks of their process set, and clear them."""
        ready = 0
        for number, members in self.sets.items():
            bits = self._set_bits[number]
            for rank in members:
                bits &= self._ready[rank]
                if not bits:
                    break
            ready |= bits
        if ready:
            self._ready = [bits & ~ready for bits in self._ready]
        return ready
