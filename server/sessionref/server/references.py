"""From content to distinct references: parsing text blocks, checking given ones, in first-mention order (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sessionref.protocol.errors import SessionReferenceError, invalid_reference, self_reference, too_many_references
from sessionref.protocol.jsontext import as_array, as_object, join_surrogates
from sessionref.protocol.mention import ParsedReference, clean_label, parse_session_reference_text

__all__ = (
    "INLINE_CHARACTERS",
    "ReferringMessage",
    "check_references",
    "distinct_references",
    "is_light",
    "normalise_message",
    "normalise_messages",
    "parse_content",
)

INLINE_CHARACTERS: Final = 65_536
"""What is lighter is parsed on the event loop; that takes a few milliseconds at the very worst."""

ELEMENT_CHARACTERS: Final = 64
"""An element or a member weighs as much as so many characters."""


class ReferringMessage(msgspec.Struct, frozen=True):
    """One message with its distinct references; `index` is its place in `prepareMessages`, None in `prepare`."""

    content: Any
    references: list[ParsedReference]
    index: int | None = None


def normalise_message(content: Any, references: Sequence[Any] | None, agent_id: str, limit: int) -> ReferringMessage:
    """One message of `prepare`: its mentions parsed, or the given references checked. Raises as both do."""
    if references is not None:
        return ReferringMessage(content, distinct_references(check_references(references), agent_id, limit))
    parsed_content, parsed = parse_content(content)
    return ReferringMessage(parsed_content, distinct_references(parsed, agent_id, limit))


def normalise_messages(messages: Sequence[Any], agent_id: str, limit: int) -> list[ReferringMessage]:
    """All messages of `prepareMessages`, those of a user parsed. Raises as parsing does, with the message's place."""
    normalised: list[ReferringMessage] = []
    for index, given in enumerate(messages):
        message = as_object(given) or {}
        source = as_object(message.get("source")) or {}
        is_from_user = "content" in message and source.get("kind") == "user"
        try:
            content, references = parse_content(message["content"]) if is_from_user else (None, [])
            normalised.append(ReferringMessage(content, distinct_references(references, agent_id, limit), index))
        except SessionReferenceError as failure:
            raise failure.at(message_index=index) from None
    return normalised


def is_light(value: Any) -> bool:
    """Whether decoded JSON is small enough to be looked at at once; looks at a bounded part of it."""
    if isinstance(value, str):
        return len(value) <= INLINE_CHARACTERS
    weight = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        members = as_object(part)
        elements = as_array(part) if members is None else list(members.values())
        weight += len(part) if isinstance(part, str) else ELEMENT_CHARACTERS * len(elements or ())
        if weight > INLINE_CHARACTERS:
            return False
        waiting += elements or ()
    return True


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
