"""`tidegate VERB`: finds the verb, runs it, and turns whatever goes wrong into one line."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence

from app.cli import (
    demo,
    explain,
    later,
    pipeline,
    publish,
    restore,
    serve,
    sessions,
    sow,
    subscribe,
    topics,
    version,
)
from app.cli.arguments import Parser
from app.cli.caret import pointed
from app.cli.errors import (
    CONFIGURATION,
    DONE,
    REFUSED,
    UNREACHABLE,
    CommandError,
)
from app.cli.layout import stray_package
from app.cli.terminal import complain, point_at, silence_output

VERBS = (
    serve, publish, subscribe, sow, topics, sessions, explain, pipeline, demo, restore, version,
    later,
)  # fmt: skip


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is its exit code, as `main` has it.

    Raises:
        KeyboardInterrupt: what it has written is flushed.
    """
    stray = stray_package()
    if stray is not None:
        complain(stray)
        return CONFIGURATION
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has had enough, which is no failure
        silence_output()
        return DONE
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        raise
    return code


def build_parser() -> Parser:
    """The whole command line."""
    parser = Parser(
        prog="tidegate",
        description="A conflating gateway: every subscriber gets the newest value of every key, "
        "as often as it asked for.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for module in VERBS:
        module.add_verb(verbs)
    return parser


def _run(argv: Sequence[str] | None) -> int:
    arguments = Namespace()
    try:
        arguments = build_parser().parse_args(argv)
        code: int = arguments.run(arguments)
        return code
    except SystemExit as ended:  # argparse, after printing its help
        return ended.code if isinstance(ended.code, int) else DONE
    except CommandError as error:
        complain(str(error))
        return error.exit_code
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        return _explain(error, arguments)


def _explain(error: Exception, arguments: Namespace) -> int:
    """What a client's error means; anything else is ours, and still one line."""
    from clients.errors import AnswerInvalid, GatewayProblem, GatewayUnreachable

    if isinstance(error, GatewayProblem):
        complain(str(error))
        point_at(pointed(error, arguments))
        return REFUSED
    if isinstance(error, GatewayUnreachable | AnswerInvalid):
        complain(str(error))
        return UNREACHABLE
    complain(f"{type(error).__name__}: {error}")
    if os.environ.get("TIDEGATE_LOG_LEVEL") == "debug":
        traceback.print_exception(error)
    return REFUSED
