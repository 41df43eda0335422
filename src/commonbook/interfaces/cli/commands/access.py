"""The access commands: the identity of the caller, grants on spaces, API keys, logins, and rate limits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from commonbook.core.settings.remote import RemoteSettings, book_variable, default_book, is_url, save_default_book
from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput, NoHome, NotFound, Unreachable
from commonbook.interfaces.cli.arguments import number_or
from commonbook.interfaces.cli.commands import command
from commonbook.values.spaces import LOCAL_OWNER, ROLES

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.output import Output
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.service.book import Book
    from commonbook.values.sharing import RateLimit
    from commonbook.values.spaces import ApiKey, Grant, Identity, NewKey, SpaceRole

_DEFAULT_URL: Final = "http://127.0.0.1:7373"
"""The address of `commonbook serve`, unless another one is given."""
_QUIET_SECONDS: Final = 1.0
"""The time without an answer after which a person reads that the login still waits."""


@command("whoami")
def _whoami(call: Call) -> int:
    identity = call.book.whoami()
    return call.print_answer(identity, lambda out: _show_identity(out, call, identity))


def _show_identity(out: Output, call: Call, identity: Identity) -> None:
    facts = [("book", call.place), ("principal", identity.principal), ("default space", identity.default_space)]
    if identity.key_id is not None:
        facts.append(("key", identity.key_id))
    if identity.limits is not None:
        facts.append(("limits", _roles(identity.limits)))
    if identity.expires is not None:
        facts.append(("expires", out.moment(identity.expires)))
    out.facts([*facts, ("spaces", _roles(identity.spaces))])
    call.note_home(out)


def _roles(roles: Sequence[SpaceRole]) -> str:
    return ", ".join(f"{role.space}={role.role}" for role in roles) or "none"


# --- grants


def _add_principal(to: Parser) -> None:
    to.add_argument("principal", metavar="PRINCIPAL", help="user:NAME or agent:NAME")


def _grant_arguments(to: Parser) -> None:
    _revoke_grant_arguments(to)
    to.add_argument(
        "role", metavar="ROLE", choices=ROLES, help=f"{', '.join(ROLES)}: each includes the roles before it"
    )
    to.add_argument("--expires", metavar="TIME", help="when it ends")


def _revoke_grant_arguments(to: Parser) -> None:
    _add_principal(to)
    to.add_argument("place", metavar="SPACE", help="the space")


@command(
    "grant add",
    _grant_arguments,
    summary="let a principal read, write or administer a space and all spaces below it",
    first_write=True,
)
def _add_grant(call: Call) -> int:
    args = call.args
    grant = call.book.grant(args.principal, args.place, args.role, expires=args.expires)
    sentence = f"{grant.principal} is {grant.role} of {grant.space.name} and all spaces below it"
    row = (grant.principal, grant.space.name, grant.role)
    return call.print_answer(grant, lambda out: out.report(sentence, [row]))


@command("grant list", summary="list your grants and those that you administer, of all spaces or on --space")
def _list_grants(call: Call) -> int:
    grants = call.book.grants(space=call.args.space)
    return call.print_answer(grants, lambda out: _show_grants(out, grants))


@command("grant revoke", _revoke_grant_arguments, summary="remove a grant; grants on spaces above stay")
def _revoke_grant(call: Call) -> int:
    args = call.args
    call.book.revoke(args.principal, args.place)
    sentence = f"{args.principal} no longer has a grant on {args.place}"
    return call.print_answer(None, lambda out: out.report(sentence, [(args.principal, args.place)]))


def _show_grants(out: Output, grants: Sequence[Grant]) -> None:
    rows = [
        (
            grant.space.name,
            grant.principal,
            grant.role,
            _expiry(out, grant.expires),
            grant.granted_by,
            out.moment(grant.granted_at),
        )
        for grant in grants
    ]
    out.table_or_note(("space", "principal", "role", "expires", "granted by", "granted"), rows, note="no grants")


# --- keys


def _create_key_arguments(to: Parser) -> None:
    _add_principal(to)
    to.add_argument("--label", default="", metavar="TEXT", help="a note on its purpose")
    to.add_argument(
        "--limit", action="append", metavar="SPACE=ROLE", help="limit the key to this space and role (repeatable)"
    )
    to.add_argument("--expires", metavar="TIME", help="when it ends")
    to.add_argument(
        "--login-url",
        metavar="URL",
        help="the server of the line with `commonbook login`; default: that of the book, or one that runs on this home",
    )


@command(
    "key create",
    _create_key_arguments,
    summary="create an API key; its secret is shown once; --space is where it writes by default",
    first_write=True,
)
def _create_key(call: Call) -> int:
    args = call.args
    limits = None if args.limit is None else [_parse_limit(limit) for limit in args.limit]
    created = call.book.create_key(
        args.principal, label=args.label, limits=limits, expires=args.expires, space=args.space
    )
    login = call.book.create_login(created.key.id)
    url = args.login_url or call.url or _running_server(call)
    line = f"commonbook login {url or _DEFAULT_URL} {login.code}"
    return call.print_answer(
        {**created._asdict(), "login": {**login._asdict(), "command": line}},
        lambda out: _show_new_key(
            out, created, line, is_served=url is not None, has_grant=_has_grant(call, created.key.principal)
        ),
    )


def _running_server(call: Call) -> str | None:
    """Return the address of a server that runs on this home, or None."""
    from commonbook.compose.servers import running_servers

    return next(iter(running_servers(call.settings)), None)


def _has_grant(call: Call, principal: str) -> bool:
    """Return whether a principal reaches any space: the owner of the home needs no grant."""
    now = datetime.now(UTC)
    return principal == LOCAL_OWNER or any(
        grant.principal == principal and (grant.expires is None or grant.expires > now) for grant in call.book.grants()
    )


def _parse_limit(argument: Any) -> tuple[str, Any]:  # noqa: ANN401 - the book refuses what is no role
    space, equals, role = argument.rpartition("=")
    if not equals:
        raise BadInput(f"{argument!r} is not a limit", fix="write it as SPACE=ROLE, such as team/backend=reader")
    return space, role


@command("key list", summary="list the keys, without their secrets")
def _list_keys(call: Call) -> int:
    keys = call.book.keys()
    return call.print_answer(keys, lambda out: _show_keys(out, keys, _space_names(call)))


def _revoke_key_arguments(to: Parser) -> None:
    to.add_argument("key", metavar="KEY", help="the id of the key, or its first or last digits")


@command("key revoke", _revoke_key_arguments, summary="revoke an API key")
def _revoke_key(call: Call) -> int:
    key = call.book.revoke_key(_find_key(call, call.args.key))
    row = (key.id, key.principal)
    sentence = f"The key {key.id} of {key.principal} is revoked"
    return call.print_answer(key, lambda out: out.report(sentence, [row]))


def _find_key(call: Call, argument: str) -> str:
    """Return the id of the key that begins or ends with these digits."""
    digits = argument.strip().lower()
    known = call.book.keys()
    matches = [key.id for key in known if digits and (key.id.startswith(digits) or key.id.endswith(digits))]
    if not matches:
        raise NotFound(f"there is no key {argument!r}", fix="`commonbook key list` shows the keys by their ids")
    if len(matches) > 1:
        raise BadInput(f"{argument!r} matches several keys: {', '.join(matches[:3])}", fix="give more digits of the id")
    return matches[0]


def _space_names(call: Call) -> dict[str, str]:
    """Return the names of the readable spaces by id."""
    return {space.id: space.name for space in call.book.spaces()}


def _show_new_key(out: Output, new: NewKey, login: str, *, is_served: bool, has_grant: bool) -> None:
    key, secret = new
    out.report(f"Created a key for {key.principal}: {secret}", [(key.id, key.principal, secret)])
    out.note("save it now: it is shown once and stored nowhere. Programs read it from COMMONBOOK_KEY")
    out.note("or let another machine have the key, once and within ten minutes:", command=login)
    if not is_served:
        out.note("no server runs on this home now: start one with `commonbook serve`, and use the address it prints")
    if not has_grant:
        out.note(
            f"{key.principal} has no grant, so the key reaches no space yet:",
            command=f"commonbook grant add {key.principal} SPACE ROLE",
        )


def _show_keys(out: Output, keys: Sequence[ApiKey], names: Mapping[str, str]) -> None:
    rows = [
        (
            out.name(key.id),
            key.principal,
            key.label,
            names.get(key.default_space or "", ""),
            _limits(key, names),
            out.moment(key.created),
            _expiry(out, key.expires),
            out.moment(key.revoked) if key.revoked else "",
        )
        for key in keys
    ]
    out.table_or_note(
        ("id", "principal", "label", "space", "limits", "created", "expires", "revoked"), rows, note="no keys"
    )


# --- login


def _login_arguments(to: Parser) -> None:
    to.add_argument("address", metavar="URL", help="the address of the server; several with commas between them")
    to.add_argument(
        "code", metavar="CODE", nargs="?", help="the login code that `key create` has printed; default: from input"
    )
    to.add_argument("--allow-http", action="store_true", help="send the key without encryption to another machine")


@command("login", _login_arguments, book="none", local=True)
def _login(call: Call) -> int:
    from commonbook.compose.client import log_in

    args = call.args
    code = args.code or sys.stdin.readline().strip()
    with _note_on_wait(call, f"{args.address} does not answer yet; trying again"):
        key, file = log_in(RemoteSettings.load(), args.address, code, allow_http=args.allow_http)
    # The command line sends no key without encryption, so such a book cannot be its default.
    if not args.allow_http:
        save_default_book(args.address)
    answer = {
        "key": key.id, "principal": key.principal, "expires": key.expires, "file": file, "default": not args.allow_http,
    }  # fmt: skip
    sentence = f"Saved the key of {key.principal} in {file}"

    def show(out: Output) -> None:
        out.report(sentence, [(key.id, key.principal, file)])
        if not args.allow_http:
            out.note(f"commands use the book of {args.address} by default now; `commonbook use home` goes back")
            _note_variable(out)

    return call.print_answer(answer, show)


def _note_variable(out: Output) -> None:
    if variable := book_variable():
        out.note(f"{variable} is set, and wins over the default")


def _use_arguments(to: Parser) -> None:
    to.add_argument(
        "to", metavar="BOOK", nargs="?", help="the URL of a server, the folder of a home, or `home` for ~/commonbook"
    )


@command("use", _use_arguments, book="none", local=True)
def _use(call: Call) -> int:
    to = call.args.to
    if to is not None:
        save_default_book(None if to == "home" else _usable_book(to))
    book = default_book() or "~/commonbook"

    def show(out: Output) -> None:
        out.report(f"Commands use {book} by default{' now' if to else ''}", [(book,)])
        _note_variable(out)

    return call.print_answer({"default": book, "variable": book_variable()}, show)


def _usable_book(book: str) -> str:
    """Return the URL or the absolute folder of a book; an error if there is no key for it, or no home."""
    if is_url(book):
        from commonbook.compose.client import connect

        connect(RemoteSettings.load(), book).close()
        return book
    home = Settings.load(book).home
    if not os.path.isdir(os.path.join(home, ".commonbook")):
        raise NoHome(f"there is no home at {home}", fix="`commonbook init DIR` makes a folder a home")
    return home


@contextmanager
def _note_on_wait(call: Call, note: str) -> Iterator[None]:
    """Print a note if the work takes longer than a moment; none beside JSON, whose errors are JSON too."""
    import threading

    timer = threading.Timer(_QUIET_SECONDS, call.out.note, [note])
    timer.daemon = True
    if not call.args.json:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# --- sign-in of a browser


def _sign_in_arguments(to: Parser) -> None:
    to.add_argument(
        "address",
        metavar="URL",
        nargs="?",
        help="the address of the server in the link; default: that of a server that runs on this home",
    )
    to.add_argument("--open", action="store_true", help="open the link in the browser of this machine")


@command("sign-in", _sign_in_arguments)
def _sign_in(call: Call) -> int:
    args = call.args
    url = args.address or call.url or _running_server(call)
    if url is None:
        raise Unreachable(
            "no server runs on this home now, so no link would work",
            fix="start one with `commonbook serve`, or name the address of one elsewhere: `commonbook sign-in URL`",
        )
    made = _book_with_key(call).create_sign_in()
    link = f"{url.rstrip('/')}/sign-in#{made.code}"
    if args.open:
        import webbrowser

        webbrowser.open(link)
    return call.print_answer(
        {"link": link, "expires": made.expires}, lambda out: _show_link(out, link, opened=args.open)
    )


def _book_with_key(call: Call) -> Book:
    """Return the book with a key: the one that it was opened with, or the owner's key for a server here."""
    if call.url is not None or call.settings.key is not None or call.args.actor is not None:
        return call.book
    from commonbook.compose.servers import read_owner_key

    return call.book.with_key(read_owner_key(call.book, call.settings))


def _show_link(out: Output, link: str, *, opened: bool) -> None:
    out.report(link, [(link,)])
    out.note("it works once, within a minute" + (", and is opened in the browser" if opened else ""))


def _limits(key: ApiKey, names: Mapping[str, str]) -> str:
    return ", ".join(f"{names.get(space, space)}={role}" for space, role in key.limits or ())


def _expiry(out: Output, time: datetime | None) -> tuple[str, str]:
    """Return a time of expiry, in red if it has passed."""
    return (out.moment(time), "red" if time < datetime.now(UTC) else "") if time else ("", "")


# --- rate limits


@command("limit list", summary="list the rate limits")
def _list_limits(call: Call) -> int:
    limits = call.book.limits()
    return call.print_answer(limits, lambda out: _show_rate_limits(out, limits))


def _set_limit_arguments(to: Parser) -> None:
    to.add_argument("what", metavar="ACTION", help="write, share, request or recall")
    to.add_argument("per_minute", metavar="N", help="how many a minute; `none` removes the limit")
    to.add_argument(
        "--principal", metavar="NAME", help="the principal; default: everybody without a limit of their own"
    )


@command(
    "limit set",
    _set_limit_arguments,
    summary="set how many times a minute an action is allowed",
    first_write=True,
)
def _set_limit(call: Call) -> int:
    args = call.args
    per_minute = number_or("none", args.per_minute, fix="give how many a minute, or `none`")
    limit = call.book.set_limit(args.what, per_minute, principal=args.principal)
    return call.print_answer(limit, lambda out: _show_rate_limits(out, [limit]))


def _per_minute(limit: RateLimit) -> str:
    return "no limit" if limit.per_minute is None else str(limit.per_minute)


def _show_rate_limits(out: Output, limits: Sequence[RateLimit]) -> None:
    rows = [
        (limit.action, "everybody else" if limit.principal == "*" else limit.principal, _per_minute(limit))
        for limit in limits
    ]
    out.table(("action", "principal", "per minute"), rows)
