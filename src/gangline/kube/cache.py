"""All objects of a kind, held here and kept up to date by list and watch.

The store equals the server's state of some recent version, whatever happens on the way: a watch that ends,
a connection that breaks, a version that is too old (410), events that come twice. Callbacks see every
difference once, and in the order in which the store takes it. Nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from gangline.api.metadata import ObjectMeta
from gangline.api.resources import Resource
from gangline.kube.backoff import Backoff
from gangline.kube.deep_json import collector_paused, decode_json
from gangline.kube.errors import (
    ApiError,
    Gone,
    KubeconfigError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

if TYPE_CHECKING:
    from gangline.kube.stream import WatchEvent
    from gangline.kube.verbs import ObjectClient

steady_watch_s = 5.0
"""A watch that lived this long was fine: the pauses start anew."""

T = TypeVar("T")


class CacheStatistics(NamedTuple):
    """A moment of a cache.

    Attributes:
        objects: held now.
        lists: lists since the start.
        watches: watches since the start.
        events: changes taken since the start, bookmarks not counted.
        failures: lists and watches that failed since the start.
        undecodable: objects left out because they do not fit the type, since the start.
        resource_version: up to which changes are known; empty while it must list.
        is_synced: whether the first list has come.
    """

    objects: int
    lists: int
    watches: int
    events: int
    failures: int
    undecodable: int
    resource_version: str
    is_synced: bool


class _Held(msgspec.Struct, Generic[T], gc=False):
    """One object of the store and what was read from its metadata."""

    value: T
    uid: str
    version: str
    raw: bytes = b""


class _MetaOnly(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


_decode_meta = msgspec.json.Decoder(_MetaOnly).decode


class Cache(Generic[T]):
    """The objects of one kind, in one namespace or all of them.

    Args:
        client: asks the server.
        resource: the kind.
        type_: what objects are decoded into: a struct with ``metadata``, or ``dict``. Objects that do not
            fit are left out and logged.
        namespace: None means all namespaces.
        label_selector: only objects that match.
        field_selector: only objects that match.
        keep_raw: keep each object's JSON too, for :meth:`raw`. Costs the memory.
        keep: what is held of an object once the callbacks have seen it, of another type maybe, and what they
            get as `old`; all of it without. With it the first list is told page by page, and no more than a
            page is whole at a time.
        backoff: pauses after failures.
        since: a version of the server's state of which everything is known: changes are followed from there,
            and the first list is left out.
        on_failure: awaited before each pause, in place of a word in the log, with the error and for how many
            seconds the server has told nothing since the first failure; what it raises ends :meth:`run`.
    """

    def __init__(
        self,
        client: ObjectClient,
        resource: Resource,
        type_: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        keep_raw: bool = False,
        keep: Callable[[T], Any] | None = None,
        backoff: Backoff | None = None,
        since: str = "",
        on_failure: Callable[[ApiError | KubeconfigError, float], Awaitable[None]] | None = None,
    ) -> None:
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._keep_raw = keep_raw
        self._keep = keep
        self._backoff = backoff or Backoff()
        self._decode = msgspec.json.Decoder(type_).decode
        self._store: dict[str, _Held[T]] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._callbacks: list[Callable[[T | None, T | None], None]] = []
        self._watchers: list[Callable[[list[T]], None]] = []
        self._on_failure = on_failure
        self._failing_since_s: float | None = None
        self._version = since
        self._synced = asyncio.Event()
        self._known = asyncio.Event()
        if since:
            self._synced.set()
            self._known.set()
        self._is_running = False
        self._error: ApiError | None = None
        self._lists = self._watches = self._events = self._failures = self._undecodable = 0

    # Reading: all of it without waiting.

    def get(self, key: str) -> T | None:
        """Return the object of ``NAMESPACE/NAME`` (or ``NAME``), or None."""
        held = self._store.get(key)
        return held.value if held else None

    def items(self) -> list[T]:
        """Return all objects, in the order in which they came."""
        return [held.value for held in self._store.values()]

    def raw(self, key: str) -> dict[str, Any] | None:
        """Return a fresh copy of the object as a dictionary, or None; the cache must ``keep_raw``."""
        if not self._keep_raw:
            raise ValueError(f"the cache of {self.resource.plural} keeps no raw objects")
        held = self._store.get(key)
        return msgspec.json.decode(held.raw, type=dict[str, Any]) if held else None

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Keep objects findable under the values that ``function`` returns for each."""
        index = self._indexes[name] = _Index(function)
        for key, held in self._store.items():
            index.add(key, held.value)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects that an index has under a value. Cost: O(objects found)."""
        return list(self._indexes[name].entries.get(value, {}).values())

    def on_change(self, callback: Callable[[T | None, T | None], None]) -> None:
        """Call ``callback(old, new)`` after each difference: a new object has no old, a lost one no new.

        ``old`` is always the very object that was ``new`` before, or what was to be kept of it. An object
        that was replaced by another of its name (another uid) is first lost, then new. It is called in the
        event loop and must not wait; what it raises is logged. Objects that are held already are not told.
        """
        self._callbacks.append(callback)

    def on_objects(self, callback: Callable[[list[T]], None]) -> None:
        """Call ``callback(objects)`` with all after each list and change; what it raises ends :meth:`run`."""
        self._watchers.append(callback)

    def statistics(self) -> CacheStatistics:
        """Return the numbers of this moment."""
        return CacheStatistics(
            objects=len(self._store),
            lists=self._lists,
            watches=self._watches,
            events=self._events,
            failures=self._failures,
            undecodable=self._undecodable,
            resource_version=self._version,
            is_synced=self._synced.is_set(),
        )

    @property
    def version(self) -> str:
        """Up to which version of the server's state all changes are known; empty while it must list."""
        return self._version

    @property
    def behind_s(self) -> float:
        """For how many seconds the server has told nothing since it first failed; 0 while it does."""
        since_s = self._failing_since_s
        return asyncio.get_running_loop().time() - since_s if since_s is not None else 0.0

    @property
    def is_served(self) -> bool:
        """Whether the server has the kind; False once it said that it has not, until a list comes."""
        return not isinstance(self._error, NotFound)

    async def wait_known(self) -> bool:
        """Wait for the first list, or for the server to say that it has no such kind; return which."""
        await self._known.wait()
        return self.is_served

    async def wait_synced(self, timeout_s: float | None = 30.0) -> None:
        """Wait for the first list; as long as it takes with None.

        Raises:
            Unavailable: it did not come in time; the message has the last error.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._synced.wait()
        except TimeoutError:
            why = f": {self._error}" if self._error else ""
            raise Unavailable(
                0, "", f"listing {self.resource.plural} took longer than {timeout_s:g} s{why}"
            ) from self._error

    # Following: one list, then watches that continue from it.

    async def run(self) -> None:
        """Keep the store up to date until cancelled, or until ``on_failure`` raises."""
        if self._is_running:
            raise RuntimeError(f"the cache of {self.resource.plural} is running already")
        self._is_running = True
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                error: ApiError | None = None
                failure: ApiError | KubeconfigError | None = None
                events_before, started_s = self._events, loop.time()
                try:
                    if not self._version:
                        await self._relist()
                    started_s = loop.time()
                    await self._follow()
                    self._failing_since_s = None
                except ApiError as caught:
                    error = failure = caught
                except KubeconfigError as caught:  # a token file or plugin may work again later
                    error, failure = Unauthorized(0, "", str(caught)), caught
                if error and failure:
                    self._note_failure(error)
                    self._failing_since_s = self._failing_since_s or loop.time()
                    if self._on_failure:
                        await self._on_failure(failure, loop.time() - self._failing_since_s)
                was_of_use = self._events > events_before
                if error is None and was_of_use:
                    failures = 0
                    continue
                is_broken = isinstance(error, Unavailable)
                if loop.time() - started_s >= steady_watch_s or (is_broken and was_of_use):
                    failures = 0
                failures += 1
                await self._backoff.sleep(self._backoff.delay_s(failures, error))
        finally:
            self._is_running = False

    def _note_failure(self, error: ApiError) -> None:
        self._failures += 1
        is_known = isinstance(error, NotFound) and not self.is_served
        self._error = error
        if isinstance(error, NotFound):
            self._known.set()
        if not isinstance(error, Unavailable | TooManyRequests):
            # Too old, or newer than a server that lost its state, or what else: a list is the way out.
            self._version = ""
        if self._on_failure:
            return
        log = self._log()
        if isinstance(error, NotFound) and not (is_known or self._synced.is_set()):
            log.info("no such kind here so far", next="it is asked for again")
            return
        log_it = log.debug if is_known or isinstance(error, Gone) else log.warning
        log_it("cache fell behind", status=error.status, error=str(error))

    async def _relist(self) -> None:
        """Replace the store by a list; callbacks see the differences."""
        self._lists += 1
        listed: dict[str, _Held[T] | None] = {}
        is_told = self._keep is not None and not self._synced.is_set()
        pages = self._client.list_pages(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        async with aclosing(pages):
            async for page in pages:
                if page.is_first:
                    listed.clear()
                with collector_paused():
                    self._take_page(page.items, listed, is_told=is_told)
        for key in [key for key in self._store if key not in listed]:
            self._put(key, None)
        for key, held in listed.items():
            if held is not None:
                self._put(key, held)
        self._version = page.resource_version
        self._error = self._failing_since_s = None
        self._synced.set()
        self._known.set()
        self._tell_objects()

    def _take_page(
        self, items: list[msgspec.Raw], listed: dict[str, _Held[T] | None], *, is_told: bool
    ) -> None:
        """Note the objects of a page, with None for those that are not to be put any more."""
        for item in items:
            meta, held = self._read(item)
            if meta is None or held is None:
                continue
            key, old = meta.key, self._store.get(meta.key)
            is_news = old is None or (old.uid, old.version) != (held.uid, held.version)
            if is_news and is_told:
                self._put(key, held)
            listed[key] = held if is_news and not is_told else None

    async def _follow(self) -> None:
        """Take the changes of one watch until it ends."""
        self._watches += 1
        events = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        async with aclosing(events):
            async for event in events:
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        self._failing_since_s = None
        if event.type == "BOOKMARK":
            self._version = _decode_meta(event.object).metadata.resource_version or self._version
            return
        self._events += 1
        meta, held = self._read(event.object)
        if meta is None:
            return
        self._version = meta.resource_version or self._version
        old = self._store.get(meta.key)
        is_deleted = event.type == "DELETED"
        if old and old.uid == meta.uid and old.version != meta.resource_version:
            is_news = _is_newer(meta.resource_version, old.version)
        else:
            is_news = is_deleted or old is None or old.uid != meta.uid
        if is_news:  # else it came twice
            self._put(meta.key, None if is_deleted else held)
            self._tell_objects()

    def _read(self, raw: bytes | msgspec.Raw) -> tuple[ObjectMeta | None, _Held[T] | None]:
        """Return an object and its metadata; no object when it does not fit the type."""
        try:
            value = decode_json(self._decode, raw)
            meta: ObjectMeta = getattr(value, "metadata", None) or decode_json(_decode_meta, raw).metadata
        except msgspec.MsgspecError as error:
            self._undecodable += 1
            known = _meta_of_misfit(raw)
            self._log().error("object left out", key=known.key if known else "", error=str(error))
            return known, None
        return meta, _Held(value, meta.uid, meta.resource_version, bytes(raw) if self._keep_raw else b"")

    def _put(self, key: str, held: _Held[T] | None) -> None:
        """Replace, add or remove one object, everywhere, and tell the callbacks."""
        old = self._store.get(key)
        if old:
            for index in self._indexes.values():
                index.remove(key)
            if held is None or held.uid != old.uid:
                del self._store[key]
                self._tell(old.value, None)
                old = None
        if held:
            value = held.value
            if self._keep is not None:
                held = msgspec.structs.replace(held, value=self._keep(value))
            self._store[key] = held
            for index in self._indexes.values():
                index.add(key, held.value)
            self._tell(old.value if old else None, value)

    def _tell(self, old: T | None, new: T | None) -> None:
        for callback in self._callbacks:
            try:
                callback(old, new)
            except Exception as error:  # noqa: BLE001  # one listener must not stop the others
                self._log().error("callback of a cache failed", error=str(error), exc_info=error)

    def _tell_objects(self) -> None:
        for callback in self._watchers:
            callback(self.items())

    def _log(self) -> Any:
        import structlog  # late: 30 ms that the command line does not pay

        return structlog.get_logger().bind(resource=self.resource.plural)


class _Index(Generic[T]):
    """Objects under the values that a function finds in them."""

    def __init__(self, function: Callable[[T], Iterable[str]]) -> None:
        self.entries: dict[str, dict[str, T]] = {}
        self._function = function
        self._values: dict[str, list[str]] = {}

    def add(self, key: str, value: T) -> None:
        values = self._values[key] = list(self._function(value))
        for name in values:
            self.entries.setdefault(name, {})[key] = value

    def remove(self, key: str) -> None:
        for name in self._values.pop(key, []):
            under = self.entries.get(name, {})
            under.pop(key, None)
            if not under:
                self.entries.pop(name, None)


def _meta_of_misfit(raw: bytes | msgspec.Raw) -> ObjectMeta | None:
    try:
        return decode_json(_decode_meta, raw).metadata
    except msgspec.MsgspecError:
        return None


def _is_newer(version: str, than: str) -> bool:
    """Whether a version comes after another; versions that are no numbers are only told apart."""
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than
