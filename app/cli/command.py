"""`tidegate VERB`: find the verb, run it, and turn every failure into one line."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

import click

from tidegate.app.cli.terminal import (
    COMPLETION_VARIABLE,
    CONFIGURATION,
    DONE,
    PROGRAM,
    REFUSED,
    UNREACHABLE,
    CommandError,
    print_error,
    print_excerpt,
    silence_output,
    writing_output,
)

SHELLS = ("bash", "zsh", "fish")
USERS_SHELL = "$SHELL"  # the value of the option without a name

# A verb's module is imported when the verb is named: rich or httpx cost more than a short command.
MODULES = {
    "serve": "serve",
    "publish": "publish",
    "subscribe": "reading",
    "sow": "reading",
    "messages": "reading",
    "delete": "publish",
    "explain": "reading",
    "topics": "administration",
    "sessions": "administration",
    "top": "top",
    "token": "token",
    "ingest": "connectors",
    "forward": "connectors",
    "pipeline": "pipeline",
    "demo": "demo.command",
    "backup": "backup",
    "restore": "backup",
    "bench": "bench",
    "version": "installation",
}


class Verbs(click.Group):
    """The verbs by name, each loaded at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every verb in the order of `--help`, which is the order of use."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb; an unknown name loads all of them, so that click can suggest one."""
        for name in [cmd_name] if cmd_name in MODULES else MODULES:
            if name not in self.commands:
                module = importlib.import_module(f"tidegate.app.cli.{MODULES[name]}")
                self.add_command(getattr(module, name), name)
        return self.commands.get(cmd_name)


def _complete(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    from tidegate.app.cli.installation import install_completion, show_completion

    does = show_completion if param.name == "show_completion" else install_completion
    does(tidegate, shell)
    ctx.exit(DONE)


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from tidegate.app.cli.installation import package_version

    click.echo(f"{PROGRAM} {package_version('tidegate')}")
    ctx.exit(DONE)


class _Shell(click.Choice[str]):
    """A shell's name; without one, the shell of `$SHELL` when the command runs."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == USERS_SHELL:
            value = os.environ.get("SHELL", "").rpartition("/")[2]
            if not value:
                self.fail(f"$SHELL is not set: name one of {', '.join(SHELLS)}.", param, ctx)
        return super().convert(value, param, ctx)


def _completion_option(name: str, does: str) -> click.Option:
    return click.Option(
        [name],
        is_flag=False,
        flag_value=USERS_SHELL,
        type=_Shell(SHELLS),
        expose_value=False,
        is_eager=True,
        callback=_complete,
        help=f"{does} completion for a shell ($SHELL).",
    )


tidegate = Verbs(
    help="A conflating gateway: every subscriber gets the newest value of every key, as often as "
    "it asks for.",
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Show the version and exit.",
        ),
        _completion_option("--install-completion", "Install"),
        _completion_option("--show-completion", "Show"),
    ],
)


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; see `main`.

    Raises:
        KeyboardInterrupt: after the output so far is flushed.
    """
    wanted = os.environ.get(COMPLETION_VARIABLE)
    if wanted is not None:  # a shell asks for completions
        from click.shell_completion import shell_complete

        return shell_complete(tidegate, {}, PROGRAM, COMPLETION_VARIABLE, wanted)
    try:
        code = _run(argv)
        with writing_output():
            sys.stdout.flush()
    except BrokenPipeError:  # a reader such as `head` has stopped, which is no failure
        silence_output()
        return DONE
    except CommandError as error:
        print_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        raise
    return code


def _run(argv: Sequence[str]) -> int:
    """Run the verb; `Group.main` would print a blank line at an interrupt and exit."""
    try:
        with tidegate.make_context(PROGRAM, list(argv)) as context:
            code: int = tidegate.invoke(context)
        return code
    except click.exceptions.Exit as ended:  # --help and --version end this way
        return ended.exit_code
    except click.UsageError as error:
        place = PROGRAM if error.ctx is None else error.ctx.command_path
        print_error(f"{error.format_message()} (see {place} --help)")
        return error.exit_code
    except CommandError as error:
        print_error(str(error))
        print_excerpt(error.lines)
        return error.exit_code
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception as error:
        return _explain(error)


def _explain(error: Exception) -> int:
    """Print what a client's error means, and return its exit code."""
    from tidegate.clients.errors import (
        AnswerInvalid,
        CertificateUnusable,
        GatewayProblem,
        GatewayUnreachable,
        TokenUnusable,
    )

    if isinstance(error, GatewayProblem):
        print_error(str(error))
        return REFUSED
    if isinstance(error, GatewayUnreachable | AnswerInvalid):
        print_error(str(error))
        return UNREACHABLE
    if isinstance(error, TokenUnusable | CertificateUnusable):
        print_error(str(error))
        return CONFIGURATION
    print_error(f"{type(error).__name__}: {error}")
    if os.environ.get("TIDEGATE_LOG_LEVEL") == "debug":
        traceback.print_exception(error)
    return REFUSED
