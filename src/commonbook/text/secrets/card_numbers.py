"""Finds numbers of payment cards: digits of a known issuer, in the usual groups, that pass the Luhn check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_DIGITS: Final = re.compile(r"(?<![A-Za-z\d_.,+-])\d(?:[ \u00a0\u2009\u202f.-]?\d){12,18}(?![A-Za-z\d_]|[.,-]\d)")
_LONG_NUMBER: Final = re.compile(r"\d{4}\D?\d{4}")
_GROUPS: Final = frozenset(
    {(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (4, 4, 4, 1), (4, 4, 5), (6, 13), (8, 8)}
)
_OTHER_NUMBER: Final = re.compile(
    r"(?i)(?:order|tracking|shipment|parcel|invoice|reference|ticket|serial|imei|iccid|isbn|ean|gtin|barcode|part|case"
    r"|pedido|commande|bestell\w*|sendungs\w*|rechnungs\w*|заказ\w*|订单号?|運單|注文)[^\w\n]*(?:\w{1,8}[^\w\n]+){0,2}$"
)
_CONTEXT_CHARS: Final = 40


def card_number_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the numbers of payment cards are, in any digits."""
    # Most texts have no number so long, which this is faster to tell.
    for match in _DIGITS.finditer(text) if _LONG_NUMBER.search(text) else ():
        groups = [len(group) for group in re.split(r"[^\d]", match[0])]
        digits = "".join(str(int(char)) for char in match[0] if char.isdecimal())
        if not _is_issued(digits) or not _passes_luhn(digits):
            continue
        if len(groups) > 1 and tuple(groups) not in _GROUPS:
            continue
        if len(groups) == 1 and _OTHER_NUMBER.search(text[max(0, match.start() - _CONTEXT_CHARS) : match.start()]):
            continue
        yield match.span()


def _is_issued(digits: str) -> bool:
    """Tell whether an issuer of cards gives out numbers with this beginning and this length."""
    length, two, four = len(digits), int(digits[:2]), int(digits[:4])
    if digits[0] == "4":
        return length in {13, 16, 19}
    if 51 <= two <= 55 or 2221 <= four <= 2720 or 2200 <= four <= 2204 or two == 35:
        return length == 16
    if two in {34, 37}:
        return length == 15
    if two in {30, 36, 38, 39}:
        return length == 14
    return two in {50, 56, 57, 58, 60, 62, 63, 64, 65, 67, 68, 69, 81} and 16 <= length <= 19


def _passes_luhn(digits: str) -> bool:
    total = 0
    for at, digit in enumerate(map(int, reversed(digits))):
        doubled = digit * 2 if at % 2 else digit
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0 and len(set(digits)) > 1
