"""The name that Copilot CLI notes beside a log."""

from __future__ import annotations

import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.stores.copilot_cli.workspace import DEPTH, title_in

NOTED = "id: 301561f1\ncwd: /srv/here\nuser_named: {named}\nname: {name}\nupdated_at: 2026-05-12T00:21:12.500Z\n"


@pytest.fixture(params=["with libyaml", "without"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Wheels bring the parser in C, other builds may not."""
    if request.param == "without":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return str(request.param)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Fix the parser", "Fix the parser"),
        ('"Hello: world file"', "Hello: world file"),
        ("'it''s done'", "it's done"),
        ('"tabs\\tand \\u00e9"', "tabs\tand é"),
        ("|-\n  first line\n  second line", "first line\nsecond line"),
        (">-\n  folded\n  text", "folded text"),
        ("Ünï \U0001f600 名前", "Ünï \U0001f600 名前"),
        ("2026", "2026"),
        ("'null'", "null"),
        ("&anchor named", "named"),
        ("!!str 7", "7"),
    ],
)
def test_a_name_is_a_text_in_any_of_the_ways_of_yaml(written: str, title: str) -> None:
    assert title_in(NOTED.format(named="true", name=written)) == title


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("written", ["", "~", "null", '""', "[a, b]", "{a: b}", "*cwd", "!!python/name:os.system x"])
def test_what_is_no_text_is_no_name(written: str) -> None:
    assert title_in(NOTED.replace("cwd: ", "cwd: &cwd ").format(named="false", name=written)) is None


@pytest.mark.usefixtures("parser")
def test_a_name_comes_before_a_summary_and_the_last_of_several_counts() -> None:
    assert title_in("summary: older\nname: newer\n") == "newer"
    assert title_in("summary: older\nname:\n") == "older"
    assert title_in("summary: older\n") == "older"
    assert title_in("name: first\nname: second\n") == "second"
    assert title_in("session:\n  name: inner\n? [name]\n: listed\n? {name: a}\n: {name: b}\n") is None


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "just a text",
        "- name: in a list",
        "name: [unfinished",
        "name: a\n\tbroken",
        "name: a\nb",
        "name: a\0b",
        "name: 'a\n",
        "name: *nothing\nname",
        "%TAG ! x\nname: a",
        "\ufeff\ufeffname: a: b",
    ],
)
def test_a_file_that_is_no_mapping_or_no_yaml_names_nothing(text: str) -> None:
    assert title_in(text) is None


@pytest.mark.usefixtures("parser")
def test_only_the_first_document_counts() -> None:
    assert title_in("---\nname: a\n---\nname: b\n") == "a"


def laughs(levels: int) -> str:
    """Ten aliases of ten aliases and so on: 10 to the power of the levels if anybody looked at them all."""
    lines = ["a0: &a0 {k: v}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} {{{', '.join(f'k{at}: *a{level - 1}' for at in range(10))}}}")
        lines.append(f"m{level}: &m{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize(
    "text",
    [
        *("[" * 60_000, "{" * 60_000, "? " * 30_000, "- " * 30_000, "name: " + "[" * 60_000, "a: b\n" * 12_000 + "["),
        *("\n".join(" " * at + "a:" for at in range(300)), "&" * 60_000, "'" * 60_000, "!" * 60_000, "#" * 60_000),
    ],
)
def test_a_hostile_file_costs_little_and_names_nothing(text: str) -> None:
    limit = sys.getrecursionlimit()

    assert title_in(text) is None
    assert sys.getrecursionlimit() == limit


@pytest.mark.usefixtures("parser")
def test_aliases_and_merges_are_never_followed() -> None:
    assert title_in(laughs(40) + "\nname: still here\n") == "still here"
    assert title_in("base: &base {name: merged}\n<<: *base\n") is None


@pytest.mark.usefixtures("parser")
def test_nesting_beside_the_name_does_no_harm_as_long_as_it_is_not_deep() -> None:
    assert title_in(f"deep: {'[' * (DEPTH - 1)}{']' * (DEPTH - 1)}\nname: a\n") == "a"
    assert title_in(f"deep: {'[' * DEPTH}{']' * DEPTH}\nname: a\n") is None


@given(st.text(max_size=200) | st.text("-:[]{}?&*!|>'\"%@#, \n\tname", max_size=60))
def test_no_text_does_more_than_name_nothing(text: str) -> None:
    title = title_in(text)

    assert title is None or title
