"""The command line (contract section 6): serve, candidates, prepare, index, doctor, config.

`candidates` and `prepare` are hosts like any other: they spawn a server and call it through the client, so that they
prove the whole path. What only one command needs is imported by that command.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
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
    options = _parser().parse_args(arguments)
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


def _facts(failure: SessionReferenceError) -> str:
    """What else is known of a failure, for a person who may have named several sessions."""
    known = {name: value for name, value in failure.data.items() if name in ("reason", "sessionId", "inputIndex")}
    return f" ({', '.join(f'{name} {value}' for name, value in known.items())})" if known else ""


def _serve(options: argparse.Namespace, settings: LoadedSettings) -> NoReturn:
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
    from sessionref.server.stores.registry import open_stores

    stores = open_stores(options.store, os.environ)
    if options.command == "doctor":
        return run_doctor(stores, settings.settings, as_json=options.json)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sessionref",
        description="Find earlier AI-coding sessions and turn mentions of them into bounded, untrusted context.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sessionref {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = _common_options()

    serve = commands.add_parser("serve", parents=[common], help="serve JSON-RPC", allow_abbrev=False)
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

    candidates = commands.add_parser(
        "candidates", parents=[common, _call_options()], help="find sessions that can be mentioned", allow_abbrev=False
    )
    candidates.add_argument("--limit", type=int, metavar="N", help="rows at most (default: the setting candidateLimit)")
    candidates.add_argument("query", nargs="?", default="", metavar="QUERY", help="a part of id, cwd, label or title")

    prepare = commands.add_parser(
        "prepare", parents=[common, _call_options()], help="turn a text with mentions into context", allow_abbrev=False
    )
    prepare.add_argument("text", metavar="TEXT", help="the text with its mentions; - reads it from standard input")

    index = commands.add_parser(
        "index", parents=[common], help="read all sessions into the catalogue", allow_abbrev=False
    )
    index.add_argument("--verify", action="store_true", help="compare the catalogue with full reads, and mend it")
    index.add_argument("--json", action="store_true", help="as JSON")

    doctor = commands.add_parser("doctor", parents=[common], help="show stores and the catalogue", allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="as JSON")

    config = commands.add_parser("config", parents=[common], help="show the settings in force", allow_abbrev=False)
    config.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _common_options() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings")
    common.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="KIND[:PATH]",
        help="a place where an agent keeps its sessions; repeatable (default: dsh)",
    )
    settings = common.add_argument_group("settings", "see `sessionref config` for what is in force and why")
    for row in SETTINGS.values():
        settings.add_argument(row.option, dest=row.field, metavar="VALUE", help=row.rule)
    return common


def _call_options() -> argparse.ArgumentParser:
    call = argparse.ArgumentParser(add_help=False)
    call.add_argument("--agent", default="cli", metavar="ID", help="the target session's id (default: %(default)s)")
    call.add_argument("--cwd", metavar="DIRECTORY", help="the target's working directory (default: the current one)")
    call.add_argument("--json", action="store_true", help="the result as JSON")
    return call
