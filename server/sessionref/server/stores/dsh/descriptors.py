"""The titles and labels that events give a session, checked strictly (dsh-format section 5)."""

from __future__ import annotations

from typing import Literal

import msgspec

from sessionref.protocol.jsontext import convert, join_surrogates
from sessionref.server.stores.dsh.events import SubagentDescriptor, TitleEvent

__all__ = ("agent_label", "title")


class _ToolFilter(msgspec.Struct, forbid_unknown_fields=True):
    allow: list[str] | None = None
    deny: list[str] | None = None


class _Descriptor(msgspec.Struct, tag_field="version", tag=0, rename="camel", kw_only=True, forbid_unknown_fields=True):
    provider: str
    label: str | msgspec.UnsetType = msgspec.UNSET
    agent_provider: str | msgspec.UnsetType = msgspec.UNSET
    agent_model: str | msgspec.UnsetType = msgspec.UNSET
    persona: str | msgspec.UnsetType = msgspec.UNSET
    tool_filter: _ToolFilter | msgspec.UnsetType = msgspec.UNSET


class _First(_Descriptor, tag=1):
    """Every sub-agent was continuable then."""


class _Second(_Descriptor, tag=2):
    mode: Literal["one-shot", "continuable"]


class _Third(_Second, tag=3):
    agent_reasoning_effort: str | msgspec.UnsetType = msgspec.UNSET


def title(event: TitleEvent) -> str | None:
    """The title that the event gives, None if it is no title."""
    given = event.data.title
    return join_surrogates(given) if isinstance(given, str) and given else None


def agent_label(event: SubagentDescriptor) -> str | None:
    """The label that the event gives, None without one, and for a descriptor that is not exactly as it should be."""
    try:
        descriptor = convert(event.data, _First | _Second | _Third)
    except msgspec.ValidationError:
        return None
    # A continuable sub-agent must have a label, any other may: without one there is none to show either way.
    if not descriptor.label:
        return None
    return join_surrogates(descriptor.label)
