"""The command line (contract section 6): serve, candidates, prepare, index, doctor, config.

`candidates` and `prepare` are hosts like any other: they spawn a server and call it through the client, so that they
prove the whole path. What only one command needs is imported by that command.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.protocol.version import VERSION
from sessionref.server.settings import SETTINGS, LoadedSettings, load_settings

__all__ = ("main",)

EXIT_DOMAIN_FAILURE: Final = 1
EXIT_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 for a domain failure, 2 for usage or configuration."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(next((word for word in given if word in _COMMANDS), None)).parse_args(given)
    try:
        if options.command in ("candidates", "prepare"):
            from sessionref.server.cli_calls import run_call

            return run_call(options, _server_arguments(options))
        settings = _settings(options, os.environ)
        if options.command == "config":
            from sessionref.server.cli_config import show_config

            return show_config(settings, as_json=options.json)
        if options.command == "serve":
            _serve(options, settings)
        return _look_after(options, settings)
    except SessionReferenceError as failure:
        print(f"sessionref: {failure.code}: {failure.message}{_facts(failure)}", file=sys.stderr)
        return EXIT_USAGE if failure.code is ErrorCode.INVALID_CONFIG else EXIT_DOMAIN_FAILURE
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        # The terminal, the pipe or the disk that the answer went to.
        print(f"sessionref: the output cannot be written: {error.strerror}", file=sys.stderr)
        return EXIT_DOMAIN_FAILURE


def _facts(failure: SessionReferenceError) -> str:
    """What else is known of a failure, for a person who may have named several sessions."""
    known = {name: value for name, value in failure.data.items() if name in ("reason", "sessionId", "inputIndex")}
    return f" ({', '.join(f'{name} {value}' for name, value in known.items())})" if known else ""


def _serve(options: argparse.Namespace, settings: LoadedSettings) -> NoReturn:
    # What is imported from here on stays: looking through it for garbage meanwhile only delays the first answer.
    gc.disable()
    from sessionref.server.serve import ServeOptions, serve
    from sessionref.server.stores.registry import open_stores

    listening = ServeOptions(
        stdio=options.stdio,
        unix=options.unix,
        tcp=options.tcp,
        http=options.http,
        exit_with_stdin=options.exit_with_stdin,
        token_file=options.token_file,
        origins=options.origin,
        dsh_compat=options.dsh_compat,
        log_level=options.log_level,
        warnings=settings.warnings,
    )
    serve(open_stores(options.store, os.environ), settings.settings, listening)


def _look_after(options: argparse.Namespace, settings: LoadedSettings) -> int:
    from sessionref.server.cli_catalogue import run_doctor, run_index
    from sessionref.server.stores.registry import AUTO, open_stores

    if options.command == "doctor":
        named = options.store or [AUTO]
        is_all = AUTO in named
        return run_doctor(open_stores(named, os.environ), settings.settings, as_json=options.json, is_all=is_all)
    stores = open_stores(options.store, os.environ)
    return run_index(stores, settings.settings, verify=options.verify, as_json=options.json)


def _settings(options: argparse.Namespace, environment: Mapping[str, str]) -> LoadedSettings:
    given = {key: value for key, row in SETTINGS.items() if (value := getattr(options, row.field)) is not None}
    return load_settings(environment, options.config, given)


def _server_arguments(options: argparse.Namespace) -> list[str]:
    """The command line of a server with the same stores and settings."""
    arguments = [sys.executable, "-m", "sessionref.server", "serve", "--stdio"]
    if options.config is not None:
        arguments += ["--config", str(options.config)]
    for store in options.store:
        arguments += ["--store", store]
    for row in SETTINGS.values():
        value: Any = getattr(options, row.field)
        if value is not None:
            arguments.append(f"{row.option}={value}")
    return arguments


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The parser, with the options of the one command that is called: making those of all takes its time."""
    parser = argparse.ArgumentParser(
        prog="sessionref",
        description="Find earlier AI-coding sessions and turn mentions of them into bounded, untrusted context.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sessionref {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (summary, add_options) in _COMMANDS.items():
        added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name == command:
            add_options(added)
            _add_common_options(added)
    return parser


def _add_serve_options(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--stdio", action="store_true", help="over standard input and output (the default)")
    serve.add_argument("--unix", type=Path, metavar="PATH", help="over a Unix socket that only this user can reach")
    serve.add_argument("--tcp", metavar="HOST:PORT", help="over TCP, on the loopback interface")
    serve.add_argument(
        "--http", metavar="HOST:PORT", help="over HTTP and WebSocket, on the loopback interface (extra: http)"
    )
    serve.add_argument("--exit-with-stdin", action="store_true", help="end when standard input does")
    serve.add_argument("--token-file", type=Path, metavar="FILE", help="a private file with the bearer token for HTTP")
    serve.add_argument(
        "--origin", action="append", default=[], metavar="ORIGIN", help="let web pages of this origin call; repeatable"
    )
    serve.add_argument("--dsh-compat", action="store_true", help="answer DSH's own clients over HTTP, without a token")
    serve.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="warning", help="(default: %(default)s)"
    )


def _add_candidates_options(candidates: argparse.ArgumentParser) -> None:
    candidates.add_argument("query", nargs="?", default="", metavar="QUERY", help="a part of id, cwd, label or title")
    candidates.add_argument("--subagents", action="store_true", default=None, help="sessions of sub-agents, too")
    candidates.add_argument("--limit", type=int, metavar="N", help="rows at most (default: the setting candidateLimit)")
    _add_call_options(candidates)


def _add_prepare_options(prepare: argparse.ArgumentParser) -> None:
    prepare.add_argument("text", metavar="TEXT", help="the text with its mentions; - reads it from standard input")
    _add_call_options(prepare)


def _add_index_options(index: argparse.ArgumentParser) -> None:
    index.add_argument("--verify", action="store_true", help="compare the catalogue with full reads, and mend it")
    _add_json_option(index)


def _add_json_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="as JSON")


def _add_common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings")
    command.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="KIND[:PATH]",
        help="a place where an agent keeps its sessions, or auto: every one found; repeatable (default: dsh)",
    )
    settings = command.add_argument_group("settings", "see `sessionref config` for what is in force and why")
    for row in SETTINGS.values():
        settings.add_argument(row.option, dest=row.field, metavar="VALUE", help=row.rule)


def _add_call_options(call: argparse.ArgumentParser) -> None:
    call.add_argument("--agent", default="cli", metavar="ID", help="the target session's id (default: %(default)s)")
    call.add_argument("--cwd", metavar="DIRECTORY", help="the target's working directory (default: the current one)")
    _add_json_option(call)


_COMMANDS: Final[dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]] = {
    "serve": ("serve JSON-RPC", _add_serve_options),
    "candidates": ("find sessions that can be mentioned", _add_candidates_options),
    "prepare": ("turn a text with mentions into context", _add_prepare_options),
    "index": ("read all sessions into the catalogue", _add_index_options),
    "doctor": ("show stores and the catalogue", _add_json_option),
    "config": ("show the settings in force", _add_json_option),
}
