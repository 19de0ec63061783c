"""`sessionref index` and `sessionref doctor`: read everything once, and say what there is and what cannot be read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from sessionref.protocol.errors import SessionReferenceError
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import NOT_UNDERSTOOD, SessionIndex, store_name
from sessionref.server.documents import document_text
from sessionref.server.printable import printable
from sessionref.server.settings import Settings
from sessionref.server.store import CataloguedStore, SessionStore, Unlisted
from sessionref.server.tables import format_table

__all__ = ("run_doctor", "run_index")

_BAR_CHARACTERS: Final = 30
_STEP_SECONDS: Final = 0.2


Found = tuple[int, list[Unlisted], str | None]
"""How many sessions a store lists, what it cannot list, and what is wrong with it as a whole."""


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one store holds; `failure` is why it cannot be read as a whole."""

    kind: str
    location: str
    exists: bool
    sessions: int = 0
    unreadable: list[Unlisted] = []
    failure: str | None = None


def run_index(stores: Sequence[SessionStore], settings: Settings, *, verify: bool, as_json: bool) -> int:
    """Read all titles into the catalogue, or compare it with full reads. Returns 1 if something was not as known."""
    database = _database(settings)
    started = time.monotonic()
    reports: list[StoreReport] = []
    mended: list[str] = []
    for store in stores:
        if not isinstance(store, CataloguedStore):
            continue
        index = SessionIndex(store, database)
        reports.append(_report(store, partial(_read_everything, index)))
        if verify and database is not None:
            mended += _verify(index, database)
    if database is not None:
        database.close()
    seconds = time.monotonic() - started
    if as_json:
        document = {"stores": msgspec.to_builtins(reports), "mended": mended, "seconds": round(seconds, 3)}
        sys.stdout.write(document_text(document))
    else:
        sessions = sum(report.sessions for report in reports)
        lines = [f"{sessions} {'session' if sessions == 1 else 'sessions'} in {seconds:.1f} s."]
        lines += _unreadable_lines(reports)
        lines += [f"{key} was changed in place; the catalogue is mended." for key in mended]
        sys.stdout.write("\n".join(lines) + "\n")
    return 1 if mended or any(report.failure for report in reports) else 0


def run_doctor(stores: Sequence[SessionStore], settings: Settings, *, as_json: bool, is_all: bool = False) -> int:
    """Say what stores there are, what they hold, and how the catalogue is. Returns 1 if a store cannot be read.

    `is_all` says that these are all that were found, of which other commands use those only that they are told to.
    """
    reports = [_report_on(store) for store in stores]
    database = _database(settings)
    facts = None if database is None else database.facts()
    if database is not None:
        database.close()
    if as_json:
        document: dict[str, Any] = {
            "stores": msgspec.to_builtins(reports),
            "catalogue": None
            if facts is None
            else {"path": printable(str(settings.catalog)), **msgspec.to_builtins(facts)},
            "spillDirectory": None if settings.spill_directory is None else printable(str(settings.spill_directory)),
        }
        sys.stdout.write(document_text(document))
    else:
        rows = [
            [
                report.kind,
                _state_of(report),
                str(report.sessions),
                str(len(report.unreadable)),
                report.location,
            ]
            for report in reports
        ]
        lines = [format_table(["STORE", "STATE", "SESSIONS", "UNREADABLE", "PLACE"], rows), *_unreadable_lines(reports)]
        if is_all:
            lines.append("These are all that were found. Commands use dsh alone, unless --store names others, or auto.")
        if facts is None:
            lines.append("The catalogue is off.")
        else:
            lines.append(
                f"The catalogue is {facts.state}: {facts.lessons} sessions, {facts.captures} captures of "
                f"{_megabytes(facts.capture_bytes)}, {_megabytes(facts.file_bytes)} on disk at {settings.catalog}."
            )
        sys.stdout.write("\n".join(lines) + "\n")
    return 1 if any(report.failure for report in reports) else 0


def _state_of(report: StoreReport) -> str:
    if report.failure:
        return "not understood" if report.failure == NOT_UNDERSTOOD else report.failure
    if not report.exists:
        return "absent"
    return "found" if report.sessions or report.unreadable else "empty"


def _database(settings: Settings) -> CatalogueDatabase | None:
    if settings.catalog is None:
        return None
    return CatalogueDatabase(settings.catalog, max_bytes=settings.catalog_max_bytes)


def _report_on(store: SessionStore) -> StoreReport:
    if isinstance(store, CataloguedStore):
        index = SessionIndex(store, None)
        return _report(store, partial(_list_everything, index))

    def listing() -> Found:
        listed = store.list_sessions(_never)
        return len(listed.sessions), listed.unlisted, None

    return _report(store, listing)


def _report(store: SessionStore, read: Callable[[], Found]) -> StoreReport:
    location, exists = "", False
    if isinstance(store, CataloguedStore):
        location, exists = printable(store.location), store.exists()
    try:
        sessions, unreadable, failure = read()
    except SessionReferenceError as error:
        return StoreReport(kind=store.kind, location=location, exists=exists, failure=str(error.reason))
    return StoreReport(
        kind=store.kind,
        location=location,
        exists=exists,
        sessions=sessions,
        unreadable=unreadable,
        failure=failure,
    )


def _list_everything(index: SessionIndex) -> Found:
    index.refresh(_never)
    # Whether a store is understood shows in the first session that is read, as a rule.
    while index.is_understood is None:
        index.read_titles(_never, time.monotonic() + _STEP_SECONDS)
    return _found(index)


def _read_everything(index: SessionIndex) -> Found:
    index.refresh(_never)
    total = index.unread
    while index.unread:
        _show_progress(total - index.unread, total)
        index.read_titles(_never, time.monotonic() + _STEP_SECONDS)
    _show_progress(total, total)
    return _found(index)


def _found(index: SessionIndex) -> Found:
    return len(index.rows()), index.unlisted(), NOT_UNDERSTOOD if index.is_understood is False else None


def _verify(index: SessionIndex, database: CatalogueDatabase) -> list[str]:
    """Read every session anew, and forget what the catalogue has of those of which it knows something else."""
    name = store_name(index.store)
    known = database.lessons(name)
    mended: list[str] = []
    rows = index.rows()
    for number, row in enumerate(rows):
        _show_progress(number, len(rows))
        saved = database.capture_state(name, row.key)
        try:
            fresh = index.store.learn(row.key, None, _never, with_title=True)
            lesson = known.get(row.key)
            is_known = fresh is None or lesson is None or lesson.header == fresh.header
            if is_known and saved is not None:
                session_id = row.header.session_id
                with_state = index.store.capture_again(session_id, {row.key: saved}.get, _never)
                is_known = with_state.capture == index.store.capture(session_id, _never)
        except SessionReferenceError:
            fresh, is_known = None, False
        if not is_known:
            mended.append(row.key)
            database.forget(name, [row.key])
            if fresh is not None:
                database.save_lessons(name, {row.key: fresh})
    _show_progress(len(rows), len(rows))
    return mended


def _unreadable_lines(reports: Sequence[StoreReport]) -> list[str]:
    rows = [[report.kind, row.reason, row.place] for report in reports for row in report.unreadable]
    rows += [[report.kind, report.failure, report.location] for report in reports if report.failure]
    return ["", format_table(["STORE", "NOT READ", "SESSION"], rows), ""] if rows else []


def _show_progress(done: int, total: int) -> None:
    if total and sys.stderr.isatty():
        filled = _BAR_CHARACTERS * done // total
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r[{'#' * filled}{' ' * (_BAR_CHARACTERS - filled)}] {done}/{total}{end}")
        sys.stderr.flush()


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"


def _never() -> None:
    """Nothing cancels a command but its own end."""
