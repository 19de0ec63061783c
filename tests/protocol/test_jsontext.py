"""JSON in and out: as strict as RFC 8259, as lossless as JavaScript, measured in the bytes that are written."""

from __future__ import annotations

import json
import math
import re
from contextlib import nullcontext, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionref.protocol import jsontext
from sessionref.protocol.jsontext import (
    JsonError,
    NestingError,
    as_array,
    as_object,
    check_depth,
    decode_json,
    encode_json,
    join_surrogates,
    nesting_depth,
    replace_surrogates,
    serialised_length,
    stringify,
    tag_safe,
    utf8_length,
)

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
whole_texts = texts.map(join_surrogates)
scalars = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)


def values_of(strings: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars | strings, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4)
    )


LONE_HALF = rb'"\ud800"'
"""With this in it a text takes the way of the standard library."""


class Carrier(msgspec.Struct):
    """Something with a text in it."""

    text: str
    inner: Carrier | None = None


def naive_depth(text: str) -> int:
    depth = deepest = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


# --- Decoding


@given(values_of(texts), st.booleans(), st.sampled_from([None, 1]))
def test_valid_json_is_decoded_as_the_standard_library_does(value: Any, ascii_only: bool, indent: int | None) -> None:
    written = json.dumps(join_surrogates_in(value), ensure_ascii=ascii_only, indent=indent)
    data = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04X}", written).encode()
    assert decode_json(data) == json.loads(data)


def join_surrogates_in(value: Any) -> Any:
    """The value with its strings as JavaScript holds them."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize(
    "token",
    [
        *(b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1.5E999", b"nan", b"undefined"),
        *(b"01", b"1.", b".5", b"+1", b"-", b"0x1", b"1e", b"1_0", b"True", b"'a'", b"\xef\xbc\x91", b"1\xd9\xa3"),
        *(b'"\n"', b'"\x00"', b'"\x1f"', b'"\\x41"', b'"\\u12"', b'"\\U0041"', b'"', b'"a', b'"a"b"'),
        *(b"1,", b"1]", b"[1", b'{"a"}', b'{"a":}', b"{1:2}", b"{a:1}", b'{"a":1,}', b"/**/1", b"1//"),
        *(b"\xc2\xa01", b"\x0b1", b"\xe2\x80\xa81", b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"'),
        *(b"\x00", b"1 2", b"\xef\xbb\xbf1", b"1\x00"),
    ],
)
def test_what_is_no_json_is_refused_by_either_decoder(token: bytes, slowly: bool) -> None:
    with pytest.raises(JsonError):
        decode_json(b"[" + token + (b"," + LONE_HALF if slowly else b"") + b"]")


@pytest.mark.parametrize("text", [b"1", LONE_HALF, b"{}"])
def test_a_byte_order_mark_in_front_is_refused(text: bytes) -> None:
    with pytest.raises(JsonError):
        decode_json(b"\xef\xbb\xbf" + text)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_no_encoding_but_utf_8_is_guessed(encoding: str) -> None:
    with pytest.raises(JsonError):
        decode_json('{"a":"\\ud800"}'.encode(encoding))


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("digits", [310, 400, 4000])
@pytest.mark.parametrize("sign", [b"", b"-"])
def test_an_integer_that_no_double_can_hold_is_refused_like_any_overflow(
    sign: bytes, digits: int, slowly: bool
) -> None:
    with pytest.raises(JsonError):
        decode_json(b"[" + sign + b"9" * digits + (b"," + LONE_HALF if slowly else b"") + b"]")


@pytest.mark.parametrize("slowly", [False, True])
def test_an_integer_of_thousands_of_digits_is_refused(slowly: bool) -> None:
    with pytest.raises(JsonError):
        decode_json(b"[" + b"9" * 20_000 + (b"," + LONE_HALF if slowly else b"") + b"]")


def test_both_decoders_agree_on_numbers() -> None:
    for number in (b"0", b"-0", b"-0.0", b"1e2", b"18446744073709551616", b"1e-400", b"1.7976931348623157e308"):
        alone = decode_json(b"[" + number + b"]")[0]
        slowly = decode_json(b"[" + number + b"," + LONE_HALF + b"]")[0]
        assert (alone, type(alone), math.copysign(1, alone)) == (slowly, type(slowly), math.copysign(1, slowly))


@pytest.mark.parametrize("unit", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_an_escaped_lone_half_is_kept(unit: int) -> None:
    assert decode_json(b'{"\\u%04x":"a\\u%04Xb"}' % (unit, unit)) == {chr(unit): f"a{chr(unit)}b"}


def test_escaped_halves_that_meet_are_one_character_and_others_are_not() -> None:
    assert decode_json(rb'["\ud83d\udc1d", "\udc1d\ud83d", "\ud83d\ud83d\udc1d"]') == [
        "🐝",
        "\udc1d\ud83d",
        "\ud83d🐝",
    ]


def test_an_escaped_backslash_before_a_u_is_no_escape() -> None:
    assert decode_json(rb'"\\ud800"') == r"\ud800"


@given(st.binary(max_size=30))
@example(b"[" * 3000)
@example(b'{"a":' * 3000)
@example(b'"\\ud800' + b"[" * 3000)
def test_bytes_are_decoded_or_refused_and_nothing_else(data: bytes) -> None:
    try:
        decode_json(data)
    except JsonError:
        return
    json.loads(data.decode())


@given(values_of(texts))
def test_a_value_is_taken_as_an_object_or_an_array_only_if_it_is_one(value: Any) -> None:
    assert as_object(value) is (value if isinstance(value, dict) else None)
    assert as_array(value) is (value if isinstance(value, list) else None)


# --- Nesting


def test_nesting_is_accepted_up_to_the_limit_and_refused_above_it() -> None:
    at_limit, above = b"[" * 512 + b"]" * 512, b"[" * 513 + b"]" * 513
    assert nesting_depth(msgspec.json.encode(decode_json(at_limit))) == 512
    with pytest.raises(NestingError):
        decode_json(above)


def test_a_limit_of_nesting_can_be_named() -> None:
    assert decode_json(b'[{"a":[]}]', max_depth=3) == [{"a": []}]
    with pytest.raises(NestingError):
        decode_json(b'[{"a":[]}]', max_depth=2)


def test_brackets_side_by_side_or_in_strings_do_not_nest() -> None:
    assert decode_json(b"[" + b"[]," * 5000 + b"[]]") == [[]] * 5001
    assert decode_json(b'["' + b"[{" * 5000 + b'"]') == ["[{" * 5000]
    assert decode_json(b'["\\"' + b"[" * 5000 + b'\\\\"]') == ['"' + "[" * 5000 + "\\"]


def test_a_lone_half_does_not_let_a_deep_value_through() -> None:
    with pytest.raises(NestingError):
        decode_json(b"[" * 513 + LONE_HALF + b"]" * 513)


def test_a_hundred_thousand_levels_end_in_an_error_of_ours() -> None:
    with pytest.raises(NestingError):
        decode_json(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(NestingError):
        decode_json(b'{"a":' * 100_000 + LONE_HALF + b"}" * 100_000)


@given(values_of(st.text('[]{}"\\a', max_size=6)))
def test_the_depth_of_a_value_is_what_counting_brackets_gives(value: Any) -> None:
    data = json.dumps(value)
    assert nesting_depth(data.encode()) == naive_depth(data)


@pytest.mark.parametrize("sparse_bytes", [1, 8, 1024])
@given(
    st.integers(0, 40), st.integers(1, 30), st.text(st.sampled_from("[{]}x"), max_size=80), st.sampled_from(["[", "{"])
)
def test_a_text_is_refused_exactly_if_it_nests_deeper_whatever_else_is_in_it(
    sparse_bytes: int, levels: int, limit: int, text: str, opening: str
) -> None:
    value: Any = text
    for _ in range(levels):
        value = [value] if opening == "[" else {"name": value}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_SPARSE_BYTES", sparse_bytes)
        with pytest.raises(NestingError) if levels > limit else nullcontext():
            check_depth(json.dumps(value).encode(), limit)


@pytest.mark.usefixtures("fail_safe")
@pytest.mark.parametrize("unit", [b'\\"', b"\\\\", b'"', b'"a', b'\\"[', b'"\\'])
def test_counting_levels_is_linear_even_if_a_string_never_ends(unit: bytes) -> None:
    with pytest.raises(JsonError):
        decode_json(b"[" * 2000 + b'"' + unit * 250_000)


# --- Encoding


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", '""'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
        ("\x00\x0b\x1b\x1f", r'"\u0000\u000b\u001b\u001f"'),
        ('"\\/', r'"\"\\/"'),
        ("\x7f\x80\u2028\u2029\ufeff\ufffd", '"\x7f\x80\u2028\u2029\ufeff\ufffd"'),
        ("é日🐝<&>'", '"é日🐝<&>\'"'),
        ("\udabc", r'"\udabc"'),
        ("\udc1d\ud83d", r'"\udc1d\ud83d"'),
        ("\ud83d\udc1d", '"🐝"'),
        ("\ud83d\ud83d\udc1d\udc1d", '"\\ud83d🐝\\udc1d"'),
        ("\x7f\u2028\udfff\x1f/", '"\x7f\u2028\\udfff\\u001f/"'),
    ],
)
def test_strings_are_written_as_javascript_writes_them(text: str, written: str) -> None:
    assert stringify(text) == written
    assert stringify([text]) == f"[{written}]"
    assert encode_json({"key": text}) == f'{{"key":{written}}}'.encode()


def test_no_space_stands_between_tokens_and_members_keep_their_order() -> None:
    assert stringify({"b": [1, None, True], "a": {}}) == '{"b":[1,null,true],"a":{}}'
    assert stringify({"b": ["\ud800", None, True], "a": {}}) == '{"b":["\\ud800",null,true],"a":{}}'


@given(values_of(whole_texts))
def test_what_is_encoded_decodes_to_the_same_value(value: Any) -> None:
    assert decode_json(encode_json(value)) == value
    assert decode_json(stringify(value).encode()) == value


@given(texts, st.none() | texts)
def test_structs_are_encoded_whatever_their_texts_hold(text: str, inner: str | None) -> None:
    carrier = Carrier(text, None if inner is None else Carrier(inner))
    assert decode_json(encode_json(carrier)) == {
        "text": join_surrogates(text),
        "inner": None if inner is None else {"text": join_surrogates(inner), "inner": None},
    }


@pytest.mark.parametrize("text", ["", "\ud800"])
def test_absent_members_of_structs_stay_absent_and_names_are_kept(text: str) -> None:
    class Sparse(msgspec.Struct, rename="camel", omit_defaults=True):
        some_text: str
        some_count: int = 0
        some_note: str | msgspec.UnsetType = msgspec.UNSET

    assert encode_json([Sparse(text)]) == b'[{"someText":%b}]' % stringify(text).encode()


@pytest.mark.parametrize("value", [[object()], ["\ud800", object()], [object(), "\ud800"], {("a",): "\ud800"}])
def test_what_json_cannot_hold_is_an_error_of_ours(value: Any) -> None:
    with pytest.raises(JsonError):
        encode_json(value)


@pytest.mark.parametrize("text", ["a", "\ud800"])
def test_a_value_too_deep_to_be_written_is_an_error_of_ours(text: str) -> None:
    deep: list[Any] = [text]
    for _ in range(200_000):
        deep = [text, deep]
    with pytest.raises(JsonError):
        encode_json(deep)
    while len(deep) > 1:  # Taken apart level by level, since freeing it at once needs a deep stack too.
        deep = deep.pop()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["a", "\ud800"])
def test_a_number_that_json_does_not_have_is_never_written(number: float, text: str) -> None:
    value: list[Any] = [text, number]
    written: list[bytes] = []
    with suppress(JsonError):
        written.append(encode_json(value))
    with suppress(JsonError):
        written.append(stringify(value).encode())
    assert all(decode_json(data) == [text, None] for data in written)


# --- Tags and lengths


@given(values_of(whole_texts | st.text("</s>\\u003c\ud800", max_size=8).map(join_surrogates)))
@example({"</referenced-sessions>": "\ud800<"})
def test_a_tag_safe_text_spells_no_tag_and_decodes_to_the_same_value(value: Any) -> None:
    written = tag_safe(value)
    assert "<" not in written
    assert decode_json(written.encode()) == value


def test_only_the_opening_bracket_is_changed_by_tag_safety() -> None:
    assert tag_safe(["<a&b>", r"\u003c"]) == r'["\u003ca&b>","\\u003c"]'


@given(texts | st.text('<"\\\n\x1fé🐝\ud800a', max_size=20))
def test_the_serialised_length_is_that_of_what_is_written(text: str) -> None:
    assert serialised_length(text) == len(tag_safe(text).encode()) - len('""')


@given(texts)
def test_the_length_in_bytes_counts_a_lone_half_as_a_replacement_character(text: str) -> None:
    replaced = re.sub(
        "[\ud800-\udfff]", "\ufffd", text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )
    assert utf8_length(text) == len(replaced.encode())
    assert replace_surrogates(text) == replaced


@given(texts, texts)
def test_halves_are_joined_where_texts_meet(left: str, right: str) -> None:
    joined = join_surrogates(left + right)
    assert joined == join_surrogates(join_surrogates(left) + join_surrogates(right))
    assert not re.search("[\ud800-\udbff][\udc00-\udfff]", joined)


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
@given(text=st.text(alphabet='[]{}"\\ax', max_size=60))
def test_levels_are_the_same_however_the_text_is_cut_into_pieces(piece: int, text: str) -> None:
    data = text.encode()
    whole = nesting_depth(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_PIECE_BYTES", piece)
        assert nesting_depth(data) == whole


def test_levels_above_a_limit_are_not_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "_PIECE_BYTES", 10)
    assert 5 < nesting_depth(b"[" * 1000, limit=5) < 20


def test_a_lone_surrogate_where_no_text_is_expected_is_a_validation_error() -> None:
    for value, kind in (("\ud800", int), (["\ud800"], list[int]), ({"\ud800": 1}, dict[str, str])):
        with pytest.raises(msgspec.ValidationError):
            jsontext.convert(value, kind)
