"""Declarations of verbs: a signature and a docstring, with what interfaces need to know about the verb.

A declared method that a class does not implement is sent on: it calls `_call` with the verb and the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from inspect import Signature

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

NOT_SENT: Final = frozenset({"self", "progress", "noticed"})
"""Arguments that stay in the process: callbacks cannot be sent."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Verb(NamedTuple):
    """A verb: its declared function, and its request over HTTP.

    Arguments in braces stand in the path; a name that may have slashes is written `{space:path}`. The others are query
    parameters of a GET or DELETE, and fields of the JSON body of any other method. Verbs may share a method and a path:
    the fields of the request tell them apart.
    """

    function: Callable[..., Any]
    method: Method
    path: str
    changes: bool = False
    """Whether it changes the book; its request may be repeated with an `Idempotency-Key`."""
    versioned: bool = False
    """Whether the result has the version of one memory, which goes into the header `ETag`."""
    several: str | None = None
    """The path of a POST with a list of values, if the path of the verb has one of them."""
    expanded: str | None = None
    """The argument whose fields are query parameters themselves."""
    options: str | None = None
    """The verb whose arguments by name stand in place of `**options`."""
    archive: bool = False
    """Whether the body, or the answer, is a zip archive; all arguments are in the query."""
    without_key: bool = False
    """Whether it needs no API key."""
    in_parts: bool = False
    """Whether it makes several transactions, each of which can be repeated; all others make one."""
    slow: bool = False
    """Whether it may take minutes."""

    @property
    def name(self) -> str:
        """The name of the verb."""
        return self.function.__name__

    @property
    def group(self) -> str:
        """The subject of the verb: the module of its declaration."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def signature(self) -> Signature:
        """The declared signature, with annotations as texts."""
        return _signature(self.function)

    @property
    def variadic(self) -> str | None:
        """The name of the argument that takes several values (`*ids`), or None."""
        parameters = self.signature.parameters.values()
        return next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)

    @property
    def path_arguments(self) -> tuple[str, ...]:
        """The names of the arguments that stand in the path."""
        return tuple(re.findall(r"\{(\w+)", self.path))

    @property
    def template(self) -> str:
        """The path as a document shows it."""
        return self.path.replace(":path}", "}")

    @property
    def of_several(self) -> Verb:
        """The request of a verb for several values at once."""
        return self._replace(method="POST", path=self.several or self.path, several=None)

    @property
    def requests(self) -> tuple[Verb, ...]:
        """The verb with each of its methods and paths."""
        return (self, self.of_several) if self.several else (self,)

    @property
    def takes_body(self) -> bool:
        """Whether arguments that do not stand in the path are fields of a JSON body."""
        return self.method not in ("GET", "DELETE") and not self.archive

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arguments that are sent, by name; TypeError if they do not fit the signature."""
        given = self.signature.bind(None, *args, **kwargs).arguments
        given |= given.pop("options", {})
        return {name: value for name, value in given.items() if name not in NOT_SENT}


@cache
def _signature(function: Callable[..., Any]) -> Signature:
    import inspect  # noqa: PLC0415 - it takes some milliseconds, and only requests need signatures

    return inspect.signature(function)


class Declarations:
    """The base of classes that declare verbs."""

    def _call(self, verb: Verb, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any verb
        """Call a verb that the class does not implement."""
        raise NotImplementedError(verb.name)


def verb(method: Method, path: str, **properties: Any) -> Callable[[_F], _F]:  # noqa: ANN401 - as the fields of `Verb`
    """Declare a verb with its request; `properties` are the other fields of `Verb`."""

    def declare(function: _F) -> _F:
        declared = Verb(function, method, path, **properties)

        @wraps(function)
        def call(self: Declarations, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 - any verb
            return self._call(declared, args, kwargs)

        call.verb = declared  # type: ignore[attr-defined]
        return cast("_F", call)

    return declare


def implements(declaration: _F) -> Callable[[Callable[..., Any]], _F]:
    """Decorate the implementation of a verb with many arguments: it shows the signature and docstring of the verb."""
    return lambda function: cast("_F", wraps(declaration)(function))
