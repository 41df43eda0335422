"""The commands of rights: grants of spaces, and API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, NotFound
from commonbook.interfaces import json_values

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.model.spaces import ApiKey, Grant


# --- grants


def _add_grant(call: Call) -> int:
    args = call.args
    said = call.book.grant(args.principal, args.place, args.role, expires=args.expires)
    sentence = f"{said.principal} is {said.role} of {said.space.name} and all below it"
    row = (said.principal, said.space.name, said.role)
    return call.tell(json_values.grant(said), lambda out: out.report(sentence, [row]))


def _list_grants(call: Call) -> int:
    said = call.book.grants(space=call.args.space)
    return call.tell(json_values.grants(said), lambda out: _grants(out, said))


def _revoke_grant(call: Call) -> int:
    args = call.args
    call.book.revoke(args.principal, args.place)
    sentence = f"{args.principal} has no grant on {args.place} any more"
    return call.tell(
        {"principal": args.principal, "space": args.place, "revoked": True},
        lambda out: out.report(sentence, [(args.principal, args.place)]),
    )


def _grants(out: Output, said: Sequence[Grant]) -> None:
    if not said:
        out.note("no grants")
        return
    headers = ("space", "principal", "role", "expires", "granted by", "granted")
    out.table(
        headers,
        [
            (
                one.space.name,
                one.principal,
                one.role,
                _end(out, one.expires),
                one.granted_by,
                out.moment(one.granted_at),
            )
            for one in said
        ],
    )


# --- keys


def _create_key(call: Call) -> int:
    args = call.args
    limits = None if args.limit is None else [_limit(one) for one in args.limit]
    said = call.book.create_key(args.principal, label=args.label, limits=limits, expires=args.expires)
    return call.tell(
        {**json_values.key(said.key, _names(call)), "secret": said.secret},
        lambda out: _new_key(out, said.key, said.secret),
    )


def _limit(typed: str) -> tuple[str, str]:
    space, equals, role = typed.rpartition("=")
    if not equals:
        raise BadInput(f"{typed!r} is not a limit", fix="write it as SPACE=ROLE, such as team/backend=reader")
    return space, role


def _list_keys(call: Call) -> int:
    said, names = call.book.keys(), _names(call)
    return call.tell({"keys": [json_values.key(one, names) for one in said]}, lambda out: _keys(out, said, names))


def _revoke_key(call: Call) -> int:
    said = call.book.revoke_key(_meant(call, call.args.key))
    row = (said.id, said.principal)
    sentence = f"The key {said.id} of {said.principal} opens nothing any more"
    return call.tell(json_values.key(said, _names(call)), lambda out: out.report(sentence, [row]))


def _meant(call: Call, typed: str) -> str:
    """Return the id of the key that begins or ends with these digits."""
    digits = typed.strip().lower()
    known = call.book.keys()
    found = [key.id for key in known if digits and (key.id.startswith(digits) or key.id.endswith(digits))]
    if not found:
        raise NotFound(f"there is no key {typed!r}", fix="`commonbook key list` shows the keys by their ids")
    if len(found) > 1:
        raise BadInput(f"{typed!r} means several keys: {', '.join(found[:3])}", fix="give more digits of the id")
    return found[0]


def _names(call: Call) -> dict[str, str]:
    """Return the names of the spaces that can be seen from here, by their ids."""
    return {space.id: space.name for space in call.book.spaces()}


def _new_key(out: Output, key: ApiKey, secret: str) -> None:
    out.report(f"Made a key for {key.principal}: {secret}", [(key.id, key.principal, secret)])
    out.note("keep it: it is shown this once, and kept nowhere. Programs take it from COMMONBOOK_KEY")


def _keys(out: Output, said: Sequence[ApiKey], names: Mapping[str, str]) -> None:
    if not said:
        out.note("no keys")
        return
    headers = ("id", "principal", "label", "limits", "created", "expires", "revoked")
    out.table(
        headers,
        [
            (
                out.name(one.id),
                one.principal,
                one.label,
                _limits(one, names),
                out.moment(one.created),
                _end(out, one.expires),
                out.moment(one.revoked) if one.revoked else "",
            )
            for one in said
        ],
    )


def _limits(key: ApiKey, names: Mapping[str, str]) -> str:
    return ", ".join(f"{names.get(space, space)}={role}" for space, role in key.limits or ())


def _end(out: Output, time: datetime | None) -> tuple[str, str]:
    """Return when something ends, in red if that has been."""
    return (out.moment(time), "red" if time < datetime.now(UTC) else "") if time else ("", "")


COMMANDS: Final[Mapping[str, Command]] = {
    "grant add": _add_grant,
    "grant list": _list_grants,
    "grant revoke": _revoke_grant,
    "key create": _create_key,
    "key list": _list_keys,
    "key revoke": _revoke_key,
}
