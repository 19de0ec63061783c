"""Session reference URIs, mentions and labels: the codec of `dsh-session:` and a linear parser (contract section 2)."""

from __future__ import annotations

import base64
import re
import unicodedata
from typing import Final, NamedTuple

import msgspec

from sessionref.protocol.errors import invalid_reference
from sessionref.protocol.jsontext import (
    JsonError,
    decode_json,
    join_surrogates,
    replace_surrogates,
    stringify,
)

__all__ = (
    "LABEL_CHARACTERS",
    "ParsedReference",
    "ParsedText",
    "clean_label",
    "decode_session_reference_uri",
    "directory_segment",
    "encode_session_reference_uri",
    "format_session_reference_mention",
    "parse_session_reference_text",
)

SCHEME: Final = "dsh-session:"
LABEL_CHARACTERS: Final = 80
"""Code points that a cleaned label keeps."""
_CONSIDERED_CHARACTERS: Final = 4 * LABEL_CHARACTERS
"""Visible code points of a label that are looked at: the rest cannot reach the first 80."""

_LINE_TERMINATORS: Final = "\n\r\u2028\u2029"
_JAVASCRIPT_BLANKS: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PAYLOAD: Final = re.compile(r"[A-Za-z0-9_-]*")
_BARE: Final = re.compile(r"dsh-session:[A-Za-z0-9_-]+")
_LABEL: Final = re.compile(rf"(?:[^\\\]]|\\[^{_LINE_TERMINATORS}])*")
_URI_STOP: Final = re.compile(rf"[){_JAVASCRIPT_BLANKS}]")
_ESCAPE: Final = re.compile(rf"\\([^{_LINE_TERMINATORS}])")
_ESCAPED_IN_LABEL: Final = re.compile(r"[\\\]]")
_PLAIN_LABEL: Final = re.compile(r"[!-~]+(?: [!-~]+)*")
"""Most titles: nothing in them to clean."""

_NOT_PLAIN_SEGMENT: Final = re.compile(r"[^A-Za-z0-9._-]")

_INVISIBLE: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE0E),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
_JOINERS: Final = "\u200c\u200d"


class ParsedReference(msgspec.Struct, frozen=True, rename="camel"):
    """One mention found in a text: the id locates, the cleaned label displays."""

    session_id: str
    label: str


class ParsedText(msgspec.Struct, frozen=True):
    """A text with each mention replaced by `@label`, and its references in order of appearance."""

    text: str
    references: list[ParsedReference]


def encode_session_reference_uri(session_id: str) -> str:
    """The canonical URI of any JavaScript string, lone surrogates included."""
    payload = stringify(join_surrogates(session_id)).encode()
    return SCHEME + base64.urlsafe_b64encode(payload).decode().rstrip("=")


def decode_session_reference_uri(uri: str) -> str:
    """The session id of a canonical URI.

    Raises SessionReferenceError INVALID_REFERENCE unless encoding the id again gives the same URI.
    """
    payload = uri.removeprefix(SCHEME)
    if payload is not uri and _PAYLOAD.fullmatch(payload) and len(payload) % 4 != 1:
        try:
            decoded = decode_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except JsonError:
            decoded = None
        if isinstance(decoded, str) and encode_session_reference_uri(decoded) == uri:
            return decoded
    raise invalid_reference("a session reference URI is not canonical")


def format_session_reference_mention(session_id: str, label: str | None = None) -> str:
    """The mention of a session with its label cleaned, to be put into a draft."""
    shown = _ESCAPED_IN_LABEL.sub(r"\\\g<0>", clean_label(label, session_id))
    return f"@[{shown}]({encode_session_reference_uri(session_id)})"


def clean_label(label: str | None, session_id: str) -> str:
    """What is shown for a session: one line, no hidden text, no reference, at most 80 code points, never blank."""
    for candidate in (label, session_id):
        cleaned = _clean(candidate) if candidate else ""
        if cleaned:
            return cleaned
    return directory_segment(session_id)[:LABEL_CHARACTERS] or "~"


def directory_segment(session_id: str) -> str:
    """The id as one path segment: every UTF-16 unit but `[A-Za-z0-9._-]` as `~XXXX` (facts section 1.2)."""
    if session_id in (".", ".."):
        return session_id.replace(".", "~002E")
    return _NOT_PLAIN_SEGMENT.sub(_escape_units, session_id)


def parse_session_reference_text(text: str) -> ParsedText:
    """Find mentions and bare URIs and replace each by `@label`; linear in the text.

    Parsing the resulting text finds no reference. Raises SessionReferenceError INVALID_REFERENCE for a malformed URI
    inside an explicit mention, or a bare one with a base64url-shaped payload that is not canonical.
    """
    if SCHEME not in text:
        return ParsedText(text, [])
    parts: list[str] = []
    references: list[ParsedReference] = []
    cursor = 0
    for token in _tokens(text):
        session_id = decode_session_reference_uri(token.uri)
        label = clean_label(token.label, session_id)
        references.append(ParsedReference(session_id, label))
        parts += (text[cursor : token.start], "@", label)
        cursor = token.end
    parts.append(text[cursor:])
    return ParsedText(_without_tokens("".join(parts)) if references else text, references)


class _Token(NamedTuple):
    start: int
    end: int
    uri: str
    label: str | None


def _tokens(text: str) -> list[_Token]:
    """All tokens, left to right: at each place an explicit mention wins over a bare URI further right."""
    tokens: list[_Token] = []
    mentions = _MentionFinder(text)
    cursor = 0
    mention = mentions.find(cursor)
    while True:
        bare = _BARE.search(text, cursor, mention.start if mention else len(text))
        if bare is not None:
            tokens.append(_Token(bare.start(), bare.end(), bare[0], None))
            cursor = bare.end()
        elif mention is not None:
            tokens.append(mention)
            cursor = mention.end
            mention = mentions.find(cursor)
        else:
            return tokens


class _MentionFinder:
    """Finds explicit mentions from left to right, looking at each character a bounded number of times.

    Every mention holds `](dsh-session:`, so these sites are visited, not the `@[` before them. A `]` is escaped if an
    odd number of backslashes precedes it, wherever the label began, so the nearest unescaped `]` to the left of a
    site bounds where its label may begin, and is found once for all.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._site = 0
        self._barrier = 0
        self._stop = -1

    def find(self, cursor: int) -> _Token | None:
        """The first mention that begins at or after `cursor`; cursors must not decrease."""
        text = self._text
        self._site = max(self._site, cursor)
        while (bracket := text.find("](" + SCHEME, self._site)) >= 0:
            self._site = bracket + 1
            left = max(self._barrier, cursor)
            if self._is_escaped(bracket, left):
                continue
            self._barrier = bracket + 1
            start = self._label_start(left, bracket)
            if start < 0:
                continue
            end = self._uri_end(bracket + 2)
            if end < 0:
                continue
            label = _ESCAPE.sub(r"\1", text[start + 2 : bracket])
            return _Token(start, end + 1, text[bracket + 2 : end], label)
        return None

    def _is_escaped(self, position: int, left: int) -> bool:
        first = position
        while first > left and self._text[first - 1] == "\\":
            first -= 1
        return (position - first) % 2 == 1

    def _label_start(self, left: int, bracket: int) -> int:
        """The leftmost `@[` whose label reaches the bracket, or -1."""
        nearest = self._text.rfind("]", left, bracket)
        while nearest >= 0 and self._is_escaped(nearest, left):
            nearest = self._text.rfind("]", left, nearest)
        start = self._text.find("@[", max(left, nearest + 1), bracket)
        while start >= 0:
            reached = _LABEL.match(self._text, start + 2, bracket)
            if reached is None or reached.end() == bracket:
                break
            # A backslash before a line terminator: no label runs across it.
            start = self._text.find("@[", reached.end(), bracket)
        return start

    def _uri_end(self, begin: int) -> int:
        """The position of the `)` that closes a URI, or -1 if a blank comes first."""
        if self._stop < begin:
            stop = _URI_STOP.search(self._text, begin)
            self._stop = stop.start() if stop else len(self._text)
        return self._stop if self._text.startswith(")", self._stop) else -1


def _without_tokens(text: str) -> str:
    """Break what only the replacement of other tokens has joined into a token, the way labels are cleaned."""
    parts: list[str] = []
    cursor = 0
    for token in _tokens(text):
        parts += text[cursor : token.start], text[token.start : token.end].replace(SCHEME, "dsh-session ")
        cursor = token.end
    text = "".join([*parts, text[cursor:]])
    return text if not _tokens(text) else text.replace(SCHEME, "dsh-session ")


def _clean(label: str) -> str:
    if len(label) <= LABEL_CHARACTERS and (_PLAIN_LABEL.fullmatch(label) or _is_clean(label)) and SCHEME not in label:
        return label
    shown: list[str] = []
    for character in replace_surrogates(label):
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp") or character.isspace():
            # One blank of a run is enough, and keeps the bound below meaningful.
            if shown and shown[-1] != " ":
                shown.append(" ")
        elif character in _JOINERS or (category != "Cf" and character not in _INVISIBLE):
            shown.append(character)
        if len(shown) >= _CONSIDERED_CHARACTERS:
            break
    return " ".join("".join(shown).replace(SCHEME, "dsh-session ").split())[:LABEL_CHARACTERS].strip()


def _is_clean(label: str) -> bool:
    # What prints is of no category that is removed, and the blank is the only white space that prints.
    is_trimmed = bool(label) and label[0] != " " != label[-1] and "  " not in label
    return is_trimmed and label.isprintable() and _INVISIBLE.isdisjoint(label)


def _escape_units(match: re.Match[str]) -> str:
    raw = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"~{raw[at] << 8 | raw[at + 1]:04X}" for at in range(0, len(raw), 2))
