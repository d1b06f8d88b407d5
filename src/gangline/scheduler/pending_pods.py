"""The pods that wait for a node, by uid and by gang. No input or output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, ValuesView

from gangline.placement import PodView


class PendingPods(MutableMapping[str, PodView]):
    """Views by uid. What is asked about one gang costs nothing for the others."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        self._by_gang: dict[str, dict[str, PodView]] = {}
        self._gated = Counter[str]()

    def of(self, gang: str) -> Mapping[str, PodView]:
        """Return the pods of a gang, by uid."""
        return self._by_gang.get(gang, {})

    def gangs(self) -> Iterator[str]:
        """Return the keys of the gangs that have pods here."""
        return iter(self._by_gang)

    def count(self, gang: str) -> int:
        """Return how many pods of a gang there are that no gate holds back."""
        return len(self.of(gang)) - self._gated[gang]

    def values(self) -> ValuesView[PodView]:
        """Return all pods, in the order in which they came."""
        return self._pods.values()

    def __getitem__(self, uid: str) -> PodView:
        return self._pods[uid]

    def __setitem__(self, uid: str, pod: PodView) -> None:
        if uid in self._pods:
            self._leave_gang(uid)
        self._pods[uid] = pod
        if pod.gang:
            self._by_gang.setdefault(pod.gang, {})[uid] = pod
            self._gated[pod.gang] += pod.gated

    def __delitem__(self, uid: str) -> None:
        self._leave_gang(uid)
        del self._pods[uid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)

    def _leave_gang(self, uid: str) -> None:
        if not (gang := self._pods[uid].gang):
            return
        self._gated[gang] -= self._by_gang[gang].pop(uid).gated
        if not self._by_gang[gang]:
            del self._by_gang[gang], self._gated[gang]
