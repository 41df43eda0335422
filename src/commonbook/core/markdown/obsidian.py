"""Obsidian syntax: find `#tags` and `[[links]]` in a text, outside of code, and resolve links to notes of a vault.

A Markdown link to a note, `[so](../plans/garden.md)`, is a link as well. It means the file at that path and no other.

The tags and links in the text of a memory count as long as they stand there: they are derived, and in no front matter.
"""

from __future__ import annotations

import json
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from commonbook.core.text.metadata import words_of
from commonbook.values.memory import MAX_TAG, MAX_TAGS, Metadata
from commonbook.values.stored_memory import StoredMemory

_FENCE: Final = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}(?=[^`]*$)|~{3,})")
_FENCE_END: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*$")
_BACKTICKS: Final = re.compile(r"`+")
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")
# As in Obsidian: after a blank, letters of any script, digits, `_`, `-` and `/`, and not a number alone.
_HASHTAG: Final = re.compile(
    r"(?<!\S)#([^\s!-,.:-@\[-^`{-~\u00a1-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf"
    r"\u2000-\u206f\u3000-\u303f\uff01-\uff0f\uff1a-\uff20]+)"
)
_MAYBE_HASHTAG: Final = re.compile(r"#[^\s#]")
"""A text without it has no tag, as most texts with headings: this is faster than looking for code."""
_WIKI_LINK: Final = re.compile(r"(!?)\[\[([^\[\]\n]+)\]\]")
# `[text](place "title")`, or the definition `[label]: place` that `[text][label]` refers to; not a footnote.
_MARKDOWN_LINK: Final = re.compile(
    r"(?:(?<!\\)\]\([ \t]*|^ {0,3}\[(?!\^)[^\[\]\n]{1,200}\]:[ \t]*)"
    r"(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))(?=[ \t\r\n)]|\Z)",
    re.MULTILINE,
)
_SCHEME: Final = re.compile(r"//|[A-Za-z][A-Za-z0-9+.-]*:")
# Messages that people and agents sent are no notes.
_WITHOUT_SYNTAX: Final = frozenset(("episode", "notice"))
_MAX_MENTIONS: Final = 500
_GENERATED: Final = re.compile(r"--([0-9a-f]{8,12})(?:-[0-9]+)?$")
_EXTENSION: Final = re.compile(r"\.(?=[0-9]*[A-Za-z])[A-Za-z0-9]{1,5}$")


def hashtags(text: str) -> tuple[str, ...]:
    """Return the inline `#tags` in order, each once regardless of case; not headings, code or parts of URLs."""
    tags: dict[str, str] = {}
    if _MAYBE_HASHTAG.search(text) is None:
        return ()
    for match in _HASHTAG.finditer(_without_code(text)):
        tag = match[1].strip("/")
        if tag and len(tag) <= MAX_TAG and not tag.isdecimal():
            tags.setdefault(tag.casefold(), tag)
    return tuple(tags.values())


def wiki_links(text: str) -> tuple[str, ...]:
    """Return the notes that `[[Target]]`, `[[folder/Target#heading|alias]]` and `![[Note]]` name, each once."""
    targets = (_target(match[2], embedded=bool(match[1])) for match in _WIKI_LINK.finditer(_without_code(text)))
    return tuple(dict.fromkeys(target for target in targets if target))


def markdown_links(text: str) -> tuple[str, ...]:
    """Return the paths without `.md` to which `[text](path.md#heading)` leads, each once, with `/`, `./` or `../`."""
    places = (_place(match[1] or match[2] or "") for match in _MARKDOWN_LINK.finditer(_without_code(text)))
    return tuple(dict.fromkeys(place for place in places if place))


def _place(address: str) -> str:
    """Return the path of a note in an address, from the root or relative to the file; "" for any other address."""
    path = re.split("[#?]", address, maxsplit=1)[0]
    if not path.lower().endswith(".md") or _SCHEME.match(path):
        return ""
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    path = path[: -len(".md")]
    return path if path.startswith(("/", "./", "../")) else f"./{path}"


# --- a memory


def tags_of(memory: StoredMemory) -> tuple[str, ...]:
    """Return the tags of a memory: from its front matter, then from its text."""
    if memory.kind in _WITHOUT_SYNTAX or "#" not in memory.text:
        return memory.tags
    tags = {tag.casefold(): tag for tag in memory.tags}
    for tag in hashtags(memory.text):
        tags.setdefault(tag.casefold(), tag)
    return tuple(tags.values())[:MAX_TAGS]


def mentions_of(memory: StoredMemory) -> tuple[str, ...]:
    """Return the notes that the text and the front matter of a memory link to, as `fold` writes them, each once."""
    if memory.kind in _WITHOUT_SYNTAX:
        return ()
    return links_in(memory.text, memory.layout, memory.metadata)


def links_in(text: str, layout: str, metadata: Metadata) -> tuple[str, ...]:
    """Return the notes that a text links to, the front matter in the layout of its file, and the metadata."""
    front = "\n".join((_front(layout) if "[[" in layout else "", *map(words_of, metadata.values())))
    found = [name.strip("/") for name in wiki_links(front)] if "[[" in front else []
    found += [name.strip("/") for name in wiki_links(text)] if "[[" in text else []
    found += markdown_links(text) if ".md" in text.lower() else ()
    return tuple(dict.fromkeys(map(fold, found)))[:_MAX_MENTIONS]


def names_of(memory: StoredMemory) -> tuple[str, ...]:
    """Return the names by which links find a memory: its title, its file's name if a person gave it, its aliases."""
    if memory.kind in _WITHOUT_SYNTAX:
        return ()
    names = [fold(memory.title)]
    stem = file_stem(memory.path)
    if not is_generated_name(stem):
        names.append(fold(stem))
    names += map(fold, aliases_in(memory.layout))
    return tuple(dict.fromkeys(name for name in names if name))


def aliases_in(layout: str) -> tuple[str, ...]:
    """Return the further names of a note, from the front matter in the layout of its file."""
    # A file with a field of a person's is not in canonical form, so its layout has the front matter.
    front = _front(layout)
    return _aliases(front) if front else ()


def _front(layout: str) -> str:
    # Most layouts have none: the file is in canonical form, or without front matter.
    return str(json.loads(layout).get("front") or "") if '"front"' in layout else ""


def file_stem(path: str) -> str:
    """Return the name of a file without its folder and its extension."""
    return posixpath.splitext(path.rpartition("/")[2])[0]


def is_generated_name(stem: str) -> bool:
    """Return whether a name of a file ends in digits of an id, as in the files that this program names."""
    return _GENERATED.search(stem) is not None


def id_digits(name: str) -> str | None:
    """Return the digits of an id in which a name of such a file ends, or None."""
    match = _GENERATED.search(name)
    return match[1] if match else None


def nearest(target: str, *, origin: str, paths: Iterable[str]) -> str | None:
    """Return the path that a folded link in the file `origin` means, of those whose files have the name; or None.

    A relative link means the file at that path. One that begins with `/` means a path from a folder above the origin,
    the uppermost one that has it. Any other link with folders means a file whose path ends with them. The nearest file
    comes first, then the one with the shortest path.
    """
    if target.startswith(("/", "./", "../")):
        by_place = {_without_extension(path): path for path in paths}
        return next((by_place[place] for place in _places(target, fold(origin)) if place in by_place), None)
    fitting = [path for path in paths if "/" not in target or f"/{_without_extension(path)}".endswith(f"/{target}")]
    exact = [path for path in fitting if _without_extension(path) == target]
    return closest(exact or fitting, origin=origin)


def _places(target: str, origin: str) -> Iterator[str]:
    """Yield the paths that a link by a path may mean in a file, the likeliest first."""
    folder = posixpath.dirname(origin)
    if not target.startswith("/"):
        yield posixpath.normpath(posixpath.join(folder, target))
        return
    folders = folder.split("/") if folder else []
    for depth in range(len(folders) + 1):
        yield posixpath.normpath("/".join((*folders[:depth], target.strip("/"))))


def closest(paths: Iterable[str], *, origin: str) -> str | None:
    """Return the path that is nearest to the file `origin`, then the shortest one; None if there is none."""
    return min(paths, key=lambda path: (_distance(origin, path), path.count("/"), path), default=None)


def _without_extension(path: str) -> str:
    return fold(posixpath.splitext(path)[0])


# --- a vault


class VaultNotes:
    """The notes of one vault, looked up by the names that a link may use, regardless of case."""

    def __init__(self, notes: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Index each note by its path (`folder/Note.md`), by the ends of its path, and by its other names."""
        self._paths: dict[str, list[str]] = {}
        self._suffixes: dict[str, list[str]] = {}
        self._aliases: dict[str, list[str]] = {}
        for path, names in notes:
            parts = fold(posixpath.splitext(path)[0]).split("/")
            self._paths.setdefault("/".join(parts), []).append(path)
            for first in range(1, len(parts)):
                self._suffixes.setdefault("/".join(parts[first:]), []).append(path)
            for name in {fold(name) for name in names}:
                self._aliases.setdefault(name, []).append(path)

    def find(self, target: str, *, origin: str) -> str | None:
        """Return the path of the note that a link in the note `origin` means, or None.

        A path from the root comes first, then the end of a path, then another name. Of several matches the one nearest
        to the origin is meant, then the one with the shortest path, then the first in alphabetical order.
        """
        wanted = fold(target)
        if wanted.startswith(("./", "../")):
            wanted = posixpath.normpath(posixpath.join(fold(posixpath.dirname(origin)), wanted))
        for names in (self._paths, self._suffixes, self._aliases):
            if paths := names.get(wanted.strip("/")):
                return closest(paths, origin=origin)
        return None


def fold(name: str) -> str:
    """Return a name as links compare it: without regard to case and normal form."""
    return unicodedata.normalize("NFC", name).casefold()


def _distance(first: str, second: str) -> int:
    """Count the steps up and down between the folders of two notes."""
    first_folders, second_folders = first.split("/")[:-1], second.split("/")[:-1]
    shared = len(posixpath.commonprefix([first_folders, second_folders]))
    return len(first_folders) + len(second_folders) - 2 * shared


def _target(inside: str, *, embedded: bool) -> str:
    """Return the note's name; "" for a heading of the same note, or an embedded picture or sound."""
    # In a table the bar is written as `\|`.
    target = inside.partition("|")[0].removesuffix("\\").partition("#")[0].strip()
    if target.lower().endswith(".md"):
        return target[: -len(".md")]
    return "" if embedded and _EXTENSION.search(target) else target


def _without_code(text: str) -> str:
    prose = "\n".join(_outside_fences(text))
    if "`" not in prose:
        return prose
    return "\n\n".join(_without_spans(paragraph) for paragraph in _BLANK_LINE.split(prose))


def _outside_fences(text: str) -> Iterator[str]:
    """Yield every line, but an empty one in place of each line of a fenced block."""
    fence = ""
    for line in text.split("\n"):
        mark = (_FENCE_END if fence else _FENCE).match(line)
        if not fence:
            fence = mark[1] if mark else ""
            yield "" if mark else line
        else:
            yield ""
            if mark and mark[1].startswith(fence):
                fence = ""


def _without_spans(paragraph: str) -> str:
    """Blank out inline code: from a run of backticks to the next run of the same length."""
    runs = list(_BACKTICKS.finditer(paragraph))
    # One pass from the right, with a look-up by length, so that unpaired backticks cost no second search.
    next_same: dict[int, int] = {}
    partner: list[int | None] = []
    for index in range(len(runs) - 1, -1, -1):
        length = len(runs[index][0])
        partner.append(next_same.get(length))
        next_same[length] = index
    partner.reverse()
    prose: list[str] = []
    position = index = 0
    while index < len(runs):
        closing = partner[index]
        if closing is not None:
            # A backtick in place of the code: a `#` after it must not look like the beginning of a word.
            prose.append(paragraph[position : runs[index].start()] + "`")
            position = runs[closing].end()
            index = closing
        index += 1
    return "".join(prose) + paragraph[position:]


# --- aliases

# The further names of a note, from its front matter: `aliases`, `alias`, and the `permalink` of basic-memory. They
# are the person's own, and are only read here. A name is one line, so no YAML parser is needed: a value
# may be one name, a list in brackets, or a list with one name a line, with or without quotes.

MAX_ALIASES: Final = 50
MAX_ALIAS_CHARS: Final = 300

_ALIAS_FIELD: Final = re.compile(
    r"^([\"']?)(?:aliases|alias|permalink)\1[ \t]*:(?=[ \t]|$)(.*(?:\n(?:[ \t].*|-(?:[ \t].*)?|)$)*)",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"|' + r"'(?:[^']|'')*'"
_QUOTED_NAME: Final = re.compile(_QUOTED)
_NAME_IN_BRACKETS: Final = re.compile(rf"{_QUOTED}|[^,\[\]\"'\s][^,\[\]]*")
_COMMENT: Final = re.compile(r"(?:^|[ \t])#.*")
_NO_NAMES: Final = frozenset(("", "null", "~"))


def _aliases(front: str) -> tuple[str, ...]:
    """Return the names in the front matter of a file, each once."""
    values = (match[2].strip() for match in _ALIAS_FIELD.finditer(front.replace("\r\n", "\n")))
    names = (" ".join(name.split()) for value in values for name in _aliases_in(value))
    unique = dict.fromkeys(name for name in names if name not in _NO_NAMES and len(name) <= MAX_ALIAS_CHARS)
    return tuple(unique)[:MAX_ALIASES]


def _aliases_in(value: str) -> Iterator[str]:
    if value.startswith("["):
        inside = _COMMENT.sub("", value.replace("\n", " ")) if "]" not in value.partition("\n")[0] else value
        yield from (_alias(match[0]) for match in _NAME_IN_BRACKETS.finditer(inside[1:].partition("]")[0]))
    elif value == "-" or value.startswith(("- ", "-\t")):
        lines = (line.strip() for line in value.split("\n"))
        yield from (_alias(line[1:].strip()) for line in lines if line.startswith("-"))
    elif not value.startswith(("{", "|", ">", "&", "*")):
        name = _alias(value.partition("\n")[0])
        yield name
        # Obsidian reads one text with commas as several names.
        if not _QUOTED_NAME.match(value) and "," in name:
            yield from name.split(",")


def _alias(text: str) -> str:
    quoted = _QUOTED_NAME.match(text)
    if quoted is None:
        return _COMMENT.sub("", text).strip()
    if text.startswith("'"):
        return quoted[0][1:-1].replace("''", "'")
    try:
        return str(json.loads(quoted[0]))
    except ValueError:
        return quoted[0][1:-1]
