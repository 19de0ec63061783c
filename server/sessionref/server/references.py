"""From content to distinct references: parsing text blocks, checking given ones, in first-mention order (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessionref.protocol.errors import SessionReferenceError, invalid_reference, self_reference, too_many_references
from sessionref.protocol.jsontext import as_array, as_object, join_surrogates
from sessionref.protocol.mention import ParsedReference, clean_label, parse_session_reference_text

__all__ = ("check_references", "distinct_references", "parse_content")


def parse_content(content: Any) -> tuple[Any, list[ParsedReference]]:
    """Replace the mentions in a string or in text blocks; everything else is passed through as it is.

    Returns the content in the same shape, and all references in order of appearance. Raises SessionReferenceError
    INVALID_REFERENCE for a malformed mention.
    """
    if isinstance(content, str):
        parsed = parse_session_reference_text(content)
        return parsed.text, parsed.references
    given = as_array(content)
    if given is None:
        return content, []
    blocks: list[Any] = []
    references: list[ParsedReference] = []
    for block in given:
        members = as_object(block) or {}
        if members.get("type") == "text" and isinstance(members.get("text"), str):
            parsed = parse_session_reference_text(members["text"])
            references += parsed.references
            blocks.append({**members, "text": parsed.text} if parsed.references else block)
        else:
            blocks.append(block)
    return blocks, references


def check_references(given: Sequence[Any]) -> list[ParsedReference | SessionReferenceError]:
    """Check the elements of `references`; a malformed one stands as its failure, to be raised in its turn."""
    return [_check(element, index) for index, element in enumerate(given)]


def _check(element: Any, index: int) -> ParsedReference | SessionReferenceError:
    members = as_object(element)
    if members is None:
        return invalid_reference("a reference must be an object", input_index=index)
    session_id, label = members.get("sessionId"), members.get("label")
    if not isinstance(session_id, str):
        return invalid_reference("a reference needs a sessionId that is a string", input_index=index)
    if "label" in members and not isinstance(label, str):
        return invalid_reference("the label of a reference must be a string", input_index=index)
    session_id = join_surrogates(session_id)
    return ParsedReference(session_id, clean_label(label, session_id))


def distinct_references(
    references: Sequence[ParsedReference | SessionReferenceError], agent_id: str, limit: int
) -> list[ParsedReference]:
    """One reference a session, in first-mention order and with its first label.

    Raises, in this order: the first failure or self-reference met, then SessionReferenceError TOO_MANY.
    """
    distinct: dict[str, ParsedReference] = {}
    for index, reference in enumerate(references):
        if isinstance(reference, SessionReferenceError):
            raise reference
        if reference.session_id == agent_id:
            raise self_reference(reference.session_id, index)
        distinct.setdefault(reference.session_id, reference)
    if len(distinct) > limit:
        raise too_many_references(limit, len(distinct))
    return list(distinct.values())
