"""The part of CEL that rules of definitions and selectors of devices mostly need; no more is taken. Pure.

Served: ``self`` and ``oldSelf``, or ``device``, fields and indexes, ``has(a.b)``, ``size(a)`` and
``a.size()``, ``startsWith``, ``endsWith``, ``contains``, ``lowerAscii``, ``upperAscii`` and ``matches`` of
texts (a pattern of characters, ``.``, sets, ``* + ?``, ``|``), literals and lists, comparisons, ``in``,
``&& || !`` and ``a ? b : c``; ``quantity(text)`` and ``semver(text)`` with ``compareTo``, ``isLessThan`` and
``isGreaterThan``; ``cel.bind``. Not served: arithmetic, macros over lists (``all``, ``exists``), times.
Source: github.com/google/cel-spec; names and types as Kubernetes has them.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, NamedTuple

from gangline.units import parse_quantity

Values = Mapping[str, Any]
Expression = Callable[[Values], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<sign>==|!=|<=|>=|&&|\|\||[-<>!?:.,()\[\]]))"
)
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_UPPER: Final = str.maketrans(ascii_lowercase, ascii_uppercase)
_CASES: Final[dict[str, Callable[[str], str]]] = {
    "lowerAscii": lambda text: text.translate(_LOWER),
    "upperAscii": lambda text: text.translate(_UPPER),
}
# ^.*(a100|h100)[-_ ]\d+GB$
_PATTERN = re.compile(
    r"(?:\^|\$|\||(?:[\w /:,-]|\.|\\[.dws+*?()/-]|\[\^?[\w .:/-]+\])[*+?]?|\([\w |.:/-]+\))*"
)
"""The patterns that are taken: they mean the same in RE2 and here, and no quantifier has one within it."""
REPEATS_MAX = 4
"""``*`` and ``+`` in one pattern; more might take long on a text that does not match."""


class NotServed(ValueError):
    """The expression is beyond the served part of CEL, or no CEL; the message names the place."""


@lru_cache(maxsize=512)
def pattern_of(text: str) -> re.Pattern[str]:
    """Return a regular expression; raises NotServed for one beyond what is taken."""
    if _PATTERN.fullmatch(text) is None or sum(map(text.count, "*+")) > REPEATS_MAX:
        raise NotServed(f"the pattern `{text}`")
    try:
        return re.compile(text.replace("$", r"\Z"), re.ASCII)  # for RE2 a line's end is none of the text's
    except re.error as error:
        raise NotServed(f"the pattern `{text}`: {error}") from None


_OF_TEXTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: pattern_of(pattern).search(text) is not None,
}
VARIABLES: Final = ("self", "oldSelf")
_OF_ORDER: Final[dict[str, Callable[[int], int | bool]]] = {
    "compareTo": lambda order: order,
    "isLessThan": lambda order: order < 0,
    "isGreaterThan": lambda order: order > 0,
}
"""Methods of quantities and versions, by which of the two is larger: -1, 0, 1."""


class NotCel(NotServed):
    """The expression is no CEL at all."""


class NoValue(ValueError):
    """An expression has no value for an object: a field is absent, or types do not go together."""


class Version(NamedTuple):
    """A semantic version; one with a suffix comes before the one without."""

    major: int
    minor: int
    patch: int
    is_final: bool = True
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Return what a text says; ``ValueError`` if it is no version such as 1.2.3 or 1.2.3-rc.1."""
        found = _VERSION.fullmatch(text)
        if found is None:
            raise ValueError(f"`{text}` is no version such as 1.2.3")
        return cls(int(found[1]), int(found[2]), int(found[3]), found[4] is None, found[4] or "")


_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_MADE_OF_TEXT: Final[dict[str, Callable[[str], Any]]] = {"quantity": parse_quantity, "semver": Version.parse}


def compile_rule(text: str, variables: tuple[str, ...] = VARIABLES) -> Expression:
    """Return the function that evaluates an expression of these variables.

    Raises:
        NotServed: see the module's description.

    Cost: 100 microseconds once, then about 2 for each operator; raises NoValue when called.
    """
    parser = _Parser(_tokens(text), variables)
    try:
        found = parser.conditional()
    except RecursionError:
        raise NotServed("so deep a nesting") from None
    parser.expect("")
    return found


@lru_cache(maxsize=512)
def is_transition(text: str) -> bool:
    """Whether a rule compares with the state before, and so holds for updates only."""
    return any(kind == "name" and word == "oldSelf" for kind, word in _tokens(text))


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotServed(f"`{text[position:].strip()[:20]}`")
        found.append((str(match.lastgroup), match[match.lastgroup or 0]))
        position = match.end()
    return [*found, ("", "")]


class _Parser:
    """Recursive descent: one method for each level of binding, the loosest first."""

    def __init__(self, tokens: list[tuple[str, str]], variables: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._variables = variables
        self._index = 0

    @property
    def _word(self) -> str:
        kind, word = self._tokens[self._index]
        return "" if kind == "text" else word

    def _take(self, *words: str) -> str:
        """Return the next word and step over it if it is one of these; else an empty text."""
        word = self._word
        if not word or word not in words:
            return ""
        self._index += 1
        return word

    def expect(self, word: str) -> None:
        """Step over a word that must come now; the empty one is the end."""
        kind, found = self._tokens[self._index]
        if (kind == "text") or found != word:
            raise NotServed(f"`{found}`" if found else "the end")
        self._index += bool(word)

    def conditional(self) -> Expression:
        """``a ? b : c``, and all that binds closer."""
        condition = self._chain("||", True, lambda: self._chain("&&", False, self._relation))
        if not self._take("?"):
            return condition
        first = self.conditional()
        self.expect(":")
        second = self.conditional()
        return lambda values: first(values) if _truth(condition(values)) else second(values)

    def _chain(self, sign: str, decides: bool, part: Callable[[], Expression]) -> Expression:
        parts = [part()]
        while self._take(sign):
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda values: _any_decides(parts, decides, values)

    def _relation(self) -> Expression:
        left = self._unary()
        sign = self._take("==", "!=", "<", "<=", ">", ">=", "in")
        if not sign:
            return left
        right = self._unary()
        return lambda values: _compare(sign, left(values), right(values))

    def _unary(self) -> Expression:
        if self._take("!"):
            inner = self._unary()
            return lambda values: not _truth(inner(values))
        if self._take("-"):
            kind, word = self._tokens[self._index]
            if kind != "number":
                raise NotServed("`-`")
            self._index += 1
            number = -_number(word)
            return lambda _: number
        return self._member()

    def _member(self) -> Expression:
        found = self._primary()
        while sign := self._take(".", "["):
            if sign == "[":
                found = _index_of(found, self.conditional())
                self.expect("]")
                continue
            name = self._name()
            found = self._method(found, name) if self._take("(") else _Field(found, name)
        return found

    def _method(self, owner: Expression, name: str) -> Expression:
        if name == "size":
            self.expect(")")
            return lambda values: _size(owner(values))
        if case := _CASES.get(name):
            self.expect(")")
            return lambda values: case(_text(owner(values)))
        if name not in _OF_TEXTS and name not in _OF_ORDER:
            raise NotServed(f"`{name}()`")
        kind, word = self._tokens[self._index]
        part = self.conditional()
        self.expect(")")
        if name == "matches":  # what is no pattern that is taken is said now, not when it is used
            pattern_of(_unquoted(word) if kind == "text" else "(((")
        if name in _OF_ORDER:
            shown = _OF_ORDER[name]
            return lambda values: shown(_order(owner(values), part(values)))
        test = _OF_TEXTS[name]
        return lambda values: test(_text(owner(values)), _text(part(values)))

    def _primary(self) -> Expression:
        if self._take("("):
            inner = self.conditional()
            self.expect(")")
            return inner
        if self._take("["):
            items = self._until("]")
            return lambda values: [item(values) for item in items]
        kind, word = self._tokens[self._index]
        self._index += 1
        if kind in ("number", "text"):
            value = _number(word) if kind == "number" else _unquoted(word)
            return lambda _: value
        if kind == "name" and word in _CONSTANTS:
            return lambda _: _CONSTANTS[word]
        if kind == "name" and self._take("("):
            return self._function(word)
        if (kind, word) == ("name", "cel"):
            return self._bind()
        if word in self._variables:
            return lambda values: values[word]
        if kind == "sign":
            raise NotCel(f"found `{word}` where a value belongs")
        raise NotServed(f"`{word}`" if word else "the end")

    def _bind(self) -> Expression:
        """``cel.bind(name, value, expression)``: the name stands for the value in the expression."""
        for word in (".", "bind", "("):
            self.expect(word)
        name = self._name()
        self.expect(",")
        value = self.conditional()
        self.expect(",")
        outside, self._variables = self._variables, (*self._variables, name)
        inner = self.conditional()
        self._variables = outside
        self.expect(")")
        return lambda values: inner({**values, name: value(values)})

    def _function(self, name: str) -> Expression:
        if name not in ("has", "size", *_MADE_OF_TEXT):
            raise NotServed(f"`{name}()`")
        argument = self.conditional()
        self.expect(")")
        if name == "size":
            return lambda values: _size(argument(values))
        if make := _MADE_OF_TEXT.get(name):
            return lambda values: _made(make, argument(values))
        if not isinstance(argument, _Field):
            raise NotServed("`has()` of no field")
        return argument.is_set

    def _until(self, end: str) -> list[Expression]:
        items: list[Expression] = []
        while not self._take(end):
            if items:
                self.expect(",")
            items.append(self.conditional())
        return items

    def _name(self) -> str:
        kind, word = self._tokens[self._index]
        if kind != "name" or "__" in word:  # Kubernetes writes names that CEL does not allow so
            raise NotServed(f"`.{word}`")
        self._index += 1
        return word


def _number(word: str) -> int | float:
    return float(word) if "." in word else int(word)


def _unquoted(word: str) -> str:
    if "\\" not in word:
        return word[1:-1]
    try:
        return str(json.loads(f'"{word[1:-1]}"'))
    except ValueError:
        raise NotServed(word) from None


class _Field:
    """A field of what another expression gives."""

    def __init__(self, owner: Expression, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, values: Values) -> Any:
        if not self.is_set(values):
            raise NoValue(f"no such key: {self._name}")
        return self._owner(values)[self._name]

    def is_set(self, values: Values) -> bool:
        """Whether its owner has it; an owner without a value raises."""
        found = self._owner(values)
        if not isinstance(found, dict):
            raise NoValue(f"no such key: {self._name}")
        return self._name in found


def _index_of(owner: Expression, index: Expression) -> Expression:
    def read(values: Values) -> Any:
        found, key = owner(values), index(values)
        is_place = isinstance(found, list) and type(key) is int and key >= 0  # Python takes -1 and true too
        try:
            if is_place or isinstance(found, dict):
                return found[key]
        except (KeyError, IndexError, TypeError):
            pass
        raise NoValue(f"no such key: {key}")

    return read


def _any_decides(parts: list[Expression], decides: bool, values: Values) -> bool:
    """Evaluate ``||`` (True decides) or ``&&`` (False does); no value counts only if none decides."""
    missing: NoValue | None = None
    for part in parts:
        try:
            if _truth(part(values)) is decides:
                return decides
        except NoValue as error:
            missing = error
    if missing:
        raise missing
    return not decides


def _compare(sign: str, left: Any, right: Any) -> bool:
    if sign in ("==", "!="):
        return _equal(left, right) == (sign == "==")
    if sign == "in":
        if not isinstance(right, list | dict):
            raise NoValue("`in` needs a list or an object")
        return any(_equal(left, item) for item in right)
    if _kind(left) != _kind(right) or _kind(left) not in (float, str):
        raise NoValue(f"`{sign}` needs two numbers or two texts")
    return bool(_ORDER[sign](left, right))


def _made(make: Callable[[str], Any], text: Any) -> Any:
    try:
        return make(_text(text))
    except ValueError as error:
        raise NoValue(str(error)) from None


def _order(left: Any, right: Any) -> int:
    if type(left) is not type(right) or not isinstance(left, Decimal | Version):
        raise NoValue("two quantities or two versions are compared so")
    return int(left > right) - int(left < right)


def _kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _equal(left: Any, right: Any) -> bool:
    """Compare as CEL does, for which true is not 1."""
    if _kind(left) != _kind(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return bool(left == right)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NoValue("a condition is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NoValue("a text is expected")
    return value


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise NoValue("`size` needs a text, a list or an object")
    return len(value)
