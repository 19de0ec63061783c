"""URIs, mentions and the parser, against a naive reference that backtracks and re-encodes as the grammar says."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessionref.protocol import (
    ErrorCode,
    SessionReferenceError,
    decode_session_reference_uri,
    encode_session_reference_uri,
    format_session_reference_mention,
    parse_session_reference_text,
)
from sessionref.protocol.mention import ParsedReference, clean_label

BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
TOKEN = re.compile(
    r"@\[((?:\\[^\n\r\u2028\u2029]|[^\\\]])*)\]\((dsh-session:[^)" + BLANKS + r"]*)\)|(dsh-session:[A-Za-z0-9_-]+)"
)
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

EVE = "dsh-session:ImV2ZSI"
"""The URI of the session `eve`."""

javascript_strings = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)


def javascript_string(text: str) -> str:
    """The text as JavaScript holds it: two halves that meet are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def naive_json(text: str) -> bytes:
    written = ""
    for character in javascript_string(text):
        if character in SHORT_ESCAPES:
            written += SHORT_ESCAPES[character]
        elif character < " " or "\ud800" <= character <= "\udfff":
            written += f"\\u{ord(character):04x}"
        else:
            written += character
    return f'"{written}"'.encode()


def naive_encode(session_id: str) -> str:
    return "dsh-session:" + base64.b64encode(naive_json(session_id), b"-_").decode().replace("=", "")


def naive_decode(uri: str) -> str | None:
    """The id, or None where the URI is not canonical."""
    payload = re.fullmatch("dsh-session:([A-Za-z0-9_-]*)", uri)
    if payload is None:
        return None
    try:
        raw = base64.b64decode(payload[1] + "=" * (-len(payload[1]) % 4), b"-_")
        decoded = json.loads(raw.decode())
    except ValueError:
        return None
    return decoded if isinstance(decoded, str) and naive_encode(decoded) == uri else None


def naive_parse(text: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Text and (id, cleaned label) by the grammar alone, or None where it must fail."""
    references: list[tuple[str, str]] = []
    parts: list[str] = []
    end = 0
    for token in TOKEN.finditer(text):
        session_id = naive_decode(token[2] if token[3] is None else token[3])
        if session_id is None:
            return None
        label = None if token[1] is None else re.sub(r"\\([^\n\r\u2028\u2029])", r"\1", token[1])
        references.append((session_id, clean_label(label, session_id)))
        parts += [text[end : token.start()], "@", references[-1][1]]
        end = token.end()
    return "".join([*parts, text[end:]]), references


def payload_of(raw: bytes) -> str:
    return "dsh-session:" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def refused(text: str) -> None:
    with pytest.raises(SessionReferenceError) as failure:
        parse_session_reference_text(text)
    assert failure.value.code is ErrorCode.INVALID_REFERENCE


def parsed(text: str) -> tuple[str, list[tuple[str, str]]]:
    result = parse_session_reference_text(text)
    return result.text, [(reference.session_id, reference.label) for reference in result.references]


# --- URIs


@given(javascript_strings)
@example("")
@example("\ud83d\ude00")
@example("\ude00\ud83d")
def test_every_javascript_string_survives_the_round_trip(session_id: str) -> None:
    assert decode_session_reference_uri(encode_session_reference_uri(session_id)) == javascript_string(session_id)


@given(javascript_strings)
def test_a_uri_is_the_base64url_of_what_javascript_would_write(session_id: str) -> None:
    assert encode_session_reference_uri(session_id) == naive_encode(session_id)


def test_halves_that_meet_are_the_same_session_as_the_whole_character() -> None:
    assert encode_session_reference_uri("\ud83d\udc1d") == encode_session_reference_uri("🐝")


@given(st.text('-_=Ii\\"0AJdev:', max_size=14))
def test_a_uri_is_accepted_exactly_if_encoding_its_id_gives_it_back(payload: str) -> None:
    uri = "dsh-session:" + payload
    expected = naive_decode(uri)
    if expected is None:
        with pytest.raises(SessionReferenceError) as failure:
            decode_session_reference_uri(uri)
        assert failure.value.code is ErrorCode.INVALID_REFERENCE
    else:
        assert decode_session_reference_uri(uri) == expected


@given(st.binary(max_size=12).map(lambda inner: b'"' + inner + b'"'))
@example(b'"\\udabc"')
@example(b'"\\udABC"')
def test_a_payload_of_any_bytes_in_quotes_is_judged_by_encoding_it_again(raw: bytes) -> None:
    uri = payload_of(raw)
    expected = naive_decode(uri)
    try:
        decoded = decode_session_reference_uri(uri)
    except SessionReferenceError:
        decoded = None
    assert decoded == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"7",
        b"true",
        b"null",
        b'{"id":"eve"}',
        b'["eve"]',
        b'"eve',
        b"",
        b' "eve"',
        b'"eve"\n',
        b'"\\u0065ve"',
        b'"e\\/ve"',
        b'"\\uDABC"',
        b'"\\u001B"',
        b'"\\u000a"',
        b'"\\u2029"',
        b'"\\ud83d\\udc1d"',
        b'"\xfe"',
        b'"\xed\xab\x80"',
        b'"\xc1\xa1"',
        b'\xef\xbb\xbf"eve"',
        b'"e\nve"',
        b'"\\ud800' + b"\n" + b'"',
        b"[" * 2000 + b"]" * 2000,
    ],
)
def test_a_payload_that_javascript_would_not_have_written_is_refused(raw: bytes) -> None:
    with pytest.raises(SessionReferenceError) as failure:
        decode_session_reference_uri(payload_of(raw))
    assert failure.value.code is ErrorCode.INVALID_REFERENCE


@pytest.mark.parametrize(
    ("raw", "session_id"),
    [
        (b'"\\udabc"', "\udabc"),
        (b'"\\u001b"', "\x1b"),
        ('"\u2029"'.encode(), "\u2029"),
        ('"\ufffd"'.encode(), "\ufffd"),
        (b'"\x7f"', "\x7f"),
        (b'""', ""),
    ],
)
def test_a_payload_as_javascript_writes_it_is_accepted(raw: bytes, session_id: str) -> None:
    assert decode_session_reference_uri(payload_of(raw)) == session_id


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "eve",
        "https://example.org/eve",
        "dsh-session",
        "dsh-session:",
        "DSH-SESSION:ImV2ZSI",
        " " + EVE,
        EVE + "\n",
        EVE + " ",
        EVE + "=",
        "dsh-session:ImV2ZSJ",
        "dsh-session:ImV2ZSIA",
        "dsh-session:ImV2ZSI" + "I" * 2,
        "dsh-session:InY/Ig",
        "dsh-session:InY+Ig",
        "dsh-session:ImV2ZSıI",
        "dsh-session:" + "A" * 100_001,
        EVE + EVE,
    ],
)
def test_a_uri_that_is_not_canonical_is_refused(uri: str) -> None:
    with pytest.raises(SessionReferenceError) as failure:
        decode_session_reference_uri(uri)
    assert failure.value.code is ErrorCode.INVALID_REFERENCE


def test_what_is_wrong_with_a_uri_is_said_without_quoting_it() -> None:
    with pytest.raises(SessionReferenceError) as failure:
        decode_session_reference_uri("dsh-session:aGVsbG8vd29ybGQ")
    assert "aGVsbG8" not in str(failure.value)


# --- Mentions


def test_a_mention_is_the_label_and_the_uri() -> None:
    assert format_session_reference_mention("eve", "Garden plan") == f"@[Garden plan]({EVE})"


def test_a_mention_without_a_label_shows_the_id() -> None:
    assert format_session_reference_mention("eve") == f"@[eve]({EVE})"


def test_backslashes_and_closing_brackets_of_a_label_are_escaped_and_nothing_else() -> None:
    assert format_session_reference_mention("eve", r"a\b]c[d(e)f@") == rf"@[a\\b\]c[d(e)f@]({EVE})"


@given(javascript_strings, st.none() | javascript_strings, st.text("ab \n", max_size=5), st.text("ab \n", max_size=5))
def test_a_formatted_mention_is_parsed_back_wherever_it_stands(
    session_id: str, label: str | None, before: str, after: str
) -> None:
    shown = clean_label(label, session_id)
    text, references = parsed(before + format_session_reference_mention(session_id, label) + after)
    assert references == [(javascript_string(session_id), shown)]
    assert text == f"{before}@{shown}{after}"


# --- Parsing

FRAGMENTS = [
    *"@[](){}\\x%=-:",
    *("@[", "](", "dsh-session:", "dsh-", "session:", "dsh-session", "ImV2ZSI", "Im"),
    *(EVE, f"({EVE})", f"]({EVE})", f"@[x]({EVE})", f"@[dsh-]({EVE})"),
    *" \t\n\r\v\f\u00a0\u1680\u2005\u2028\u2029\u202f\u205f\u3000\ufeff",
    *"\u180e\x85\x1c\u200b\u200d🐝é\ud83d\udc1d",
    encode_session_reference_uri("\ud800"),
    encode_session_reference_uri("dsh-session:ImV2ZSI"),
    encode_session_reference_uri(""),
]
drafts = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
valid_drafts = st.lists(
    st.sampled_from([f for f in FRAGMENTS if f not in ("%", "ImV2ZSI", "Im", "-", "x")]), max_size=14
).map("".join)


@settings(max_examples=600)
@given(drafts | valid_drafts)
@example(rf"@[a\]b]({EVE})")
@example(f"@[a\\\\]({EVE})")
@example(f"@[a\\\\\\]({EVE})")
@example(f"@[@[a]({EVE})](x)")
@example(f"@[a](dsh-session: @[b]({EVE})")
def test_the_parser_finds_what_the_grammar_finds(text: str) -> None:
    expected = naive_parse(text)
    if expected is None:
        refused(text)
        return
    found_text, references = parsed(text)
    assert references == expected[1]
    if not TOKEN.search(expected[0]):
        assert found_text == expected[0]


@settings(max_examples=600)
@given(drafts | valid_drafts)
@example(f"@[dsh-]({EVE})session:ImV2ZSI")
@example(f"@[dsh-session]({EVE}):ImV2ZSI")
@example(f"@[@[q]({EVE})](dsh-session:x)")
@example(f"@@[[x\\]]({EVE})(dsh-session:)")
@example(f"@[a](dsh-@[session]({EVE}):nonsense)")
def test_parsing_the_output_finds_no_reference(text: str) -> None:
    try:
        output = parse_session_reference_text(text).text
    except SessionReferenceError:
        return
    assert not TOKEN.search(output)
    assert parsed(output) == (output, [])


@given(drafts)
def test_a_text_without_references_comes_back_as_it_was(text: str) -> None:
    kept = text.replace("dsh-session:", "dsh-session;")
    assert parsed(kept) == (kept, [])


def test_references_come_in_order_of_appearance_and_repeated_ones_stay() -> None:
    text = f"see {EVE}, @[the plan]({EVE}) and {encode_session_reference_uri('adam')}"
    assert parse_session_reference_text(text).references == [
        ParsedReference("eve", "eve"),
        ParsedReference("eve", "the plan"),
        ParsedReference("adam", "adam"),
    ]


@pytest.mark.parametrize(
    ("text", "expected", "labels"),
    [
        (f"@[]({EVE})", "@eve", ["eve"]),
        (f"@[  ]({EVE})", "@eve", ["eve"]),
        (f"@[one\ntwo]({EVE})", "@one two", ["one two"]),
        (f"@[one\\\ntwo]({EVE})", "@[one\\\ntwo](@eve)", ["eve"]),
        (f"@[one\\\rtwo]({EVE})", "@[one\\\rtwo](@eve)", ["eve"]),
        (f"@[one\\\u2028two]({EVE})", "@[one\\\u2028two](@eve)", ["eve"]),
        (f"@[one\\\u2029two]({EVE})", "@[one\\\u2029two](@eve)", ["eve"]),
        (f"@[one\\\\\ntwo]({EVE})", "@one\\ two", ["one\\ two"]),
        (f"@[one\\🐝]({EVE})", "@one🐝", ["one🐝"]),
        (f"@[one]two]({EVE})", "@[one]two](@eve)", ["eve"]),
        (f"@[one\\]({EVE})", "@[one\\](@eve)", ["eve"]),
        (f"[one]({EVE})", "[one](@eve)", ["eve"]),
        (f"@[a@[b]({EVE})", "@a@[b", ["a@[b"]),
        (f"@[one]({EVE} )", "@[one](@eve )", ["eve"]),
        (f"@[one]({EVE}\n)", "@[one](@eve\n)", ["eve"]),
        (f"@[one]({EVE}\u00a0)", "@[one](@eve\u00a0)", ["eve"]),
        (f"@[one]({EVE}\ufeff)", "@[one](@eve\ufeff)", ["eve"]),
        (f"y{EVE}", "y@eve", ["eve"]),
        (f"{EVE}/notes", "@eve/notes", ["eve"]),
        (f"{EVE}=", "@eve=", ["eve"]),
        (f"`{EVE}`.", "`@eve`.", ["eve"]),
        (f"{EVE},{EVE}", "@eve,@eve", ["eve", "eve"]),
        (f"@[$& \\1 \\\\g<0> $$]({EVE})", "@$& 1 \\g<0> $$", ["$& 1 \\g<0> $$"]),
        ("ask about dsh-session: links", "ask about dsh-session: links", []),
        ("ask about dsh-session:%41", "ask about dsh-session:%41", []),
        ("DSH-SESSION:ImV2ZSI", "DSH-SESSION:ImV2ZSI", []),
        ("@[one](dsh-session: )", "@[one](dsh-session: )", []),
        ("@[one](https://example.org)", "@[one](https://example.org)", []),
    ],
)
def test_a_text_is_read_by_the_grammar_to_the_letter(text: str, expected: str, labels: list[str]) -> None:
    assert parsed(text) == (expected, [("eve", label) for label in labels])


@pytest.mark.parametrize(
    "text",
    [
        "see dsh-session:ImV2ZS",
        "see dsh-session:ImV2ZSJ",
        "see dsh-session:eve",
        "@[one](dsh-session:%41)",
        "@[one](dsh-session:)",
        "@[one](dsh-session:eve)",
        f"@[one]({EVE}=)",
        f"@[one]({EVE}\u180e)",
        f"@[one]({EVE}\x85)",
        f"@[one]({EVE}\x1f)",
        f"{EVE}{EVE}",
        f"fine: {EVE}, not fine: dsh-session:eve",
    ],
)
def test_a_malformed_reference_fails_the_whole_text(text: str) -> None:
    refused(text)


def test_what_other_tokens_have_joined_is_broken_the_way_labels_are_cleaned() -> None:
    assert parsed(f"@[dsh-]({EVE})session:ImV2ZSI") == ("@dsh-session ImV2ZSI", [("eve", "dsh-")])
