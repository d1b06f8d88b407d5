"""Methods that do what asynchronous ones do, and wait for it: with their signatures and descriptions."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from gangline.client.loop_thread import LOOP

A = TypeVar("A")
M = TypeVar("M")
P = ParamSpec("P")
T = TypeVar("T")
Asynchronous = Callable[Concatenate[A, P], Coroutine[Any, Any, T]]


class Waits(Protocol[A]):
    """An object that does what another one does, and waits for it."""

    _asynchronous: A


def waited(function: Asynchronous[A, P, T]) -> Callable[Concatenate[Waits[A], P], T]:
    """Return the method that waits for another one, which is called by the caller's thread."""

    @wraps(function)
    def method(self: Waits[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return LOOP.call(function(self._asynchronous, *args, **kwargs))

    return _with_signature(method, function)


def iterated(
    function: Callable[Concatenate[A, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Waits[A], P], Iterator[T]]:
    """Return the same for what yields."""

    @wraps(function)
    def method(self: Waits[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return LOOP.iterate(function(self._asynchronous, *args, **kwargs))

    return _with_signature(method, function)


def arguments_of(
    made: Callable[P, A],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Waits[A], P], None]]:
    """Return a decorator of ``__init__``: it takes what a class takes, and holds one of that."""

    def decorated(described: Callable[..., None]) -> Callable[Concatenate[Waits[A], P], None]:
        @wraps(described)
        def init(self: Waits[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
            self._asynchronous = made(*args, **kwargs)

        return _with_signature(init, made.__init__)

    return decorated


def _with_signature(method: M, function: Callable[..., object]) -> M:
    """Return the method; what it returns is no coroutine."""
    described: Any = method
    described.__signature__ = inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
    return method
