"""The TypeScript declarations, as a text: `schemas/sessionref.d.ts` is what the generator makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sessionref.protocol.errors import CODE_NUMBERS, ErrorCode, ReadFailedReason
from sessionref.protocol.methods import METHODS
from sessionref.protocol.typescript import typescript_declarations

PUBLISHED = Path(__file__).parents[2] / "schemas" / "sessionref.d.ts"


@pytest.fixture(scope="module")
def declarations() -> str:
    return typescript_declarations()


def block(declarations: str, name: str) -> str:
    """One declaration, from its name to the next one."""
    found = re.search(rf"^export (?:interface|type) {name} (.*?)(?=\n\n|\Z)", declarations, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{name} is not declared"
    return found[1]


def test_the_published_declarations_are_those_of_the_structs(declarations: str) -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == declarations


def test_every_method_is_declared_once_with_its_params(declarations: str) -> None:
    for row in METHODS.values():
        table = "SessionReferenceNotifications" if row.is_notification else "SessionReferenceMethods"
        assert f'"{row.name}": {{ params' in block(declarations, table)
        assert declarations.count(f'"{row.name}":') == 1
        assert block(declarations, row.params.__name__)


def test_all_codes_reasons_and_numbers_are_declared(declarations: str) -> None:
    for kind in (ErrorCode, ReadFailedReason):
        assert re.findall(r'\| "(.*?)"', block(declarations, kind.__name__)) == list(kind)
    numbers = block(declarations, "ErrorNumbers")
    for code, number in CODE_NUMBERS.items():
        assert f"  {code}: {number}" in numbers
    assert "SESSION_REFERENCE_CANCELLED: -32800 | -32802;" in numbers


def test_every_type_that_is_named_is_declared_exactly_once(declarations: str) -> None:
    declared = re.findall(r"^export (?:interface|type) (\w+)", declarations, re.MULTILINE)
    code = re.sub(r'/\*\*.*?\*/|//[^\n]*|"[^"\n]*"', "", declarations, flags=re.DOTALL)
    named = set(re.findall(r"\b[A-Z][a-z]\w+", code))
    assert sorted(declared) == sorted(named)


def test_an_optional_param_may_be_null_and_an_optional_member_of_an_answer_is_absent(declarations: str) -> None:
    assert "  cwd?: string | null;" in block(declarations, "CandidatesParams")
    assert "  cwd?: string;" in block(declarations, "Candidate")
    assert "  sessionId?: string;" in block(declarations, "ErrorData")


def test_a_member_with_a_default_is_always_there_in_an_answer(declarations: str) -> None:
    assert '  role: "user";' in block(declarations, "ContextMessage")


def test_docstrings_name_members_as_they_stand_on_the_wire(declarations: str) -> None:
    assert "`capturedFormatVersion` is absent for 0" in declarations
    assert "/** What `prepareMessages` takes. */" in declarations
