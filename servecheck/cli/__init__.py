"""The command line: flags to the public functions, their results to text and exit codes. No logic of its own."""

from __future__ import annotations

import errno
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from servecheck import __version__
from servecheck.cli import instrument, listing, outside, reading, running, written
from servecheck.cli.exits import EXIT_COULD_NOT_TELL, EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_USAGE
from servecheck.cli.telling import let_go
from servecheck.errors import EngineError, NothingSelected, ServecheckError, StoreError, UsageError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["EXIT_COULD_NOT_TELL", "EXIT_INTERRUPTED", "EXIT_NOTHING", "EXIT_USAGE", "app", "main"]

app = typer.Typer(
    name="servecheck",
    help="Can I serve this model from that endpoint instead of this one, and rely on each feature my applications use?",
    epilog="Exit codes: 0 fine · 1 something that --fail-on names · 2 usage · 3 nothing ran · 4 could not tell · "
    "130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def main() -> None:
    """Run the command line; every error raised on purpose is one message and its documented exit code."""
    try:
        app(prog_name="servecheck")
    except NothingSelected as error:
        _fail(str(error), EXIT_NOTHING)
    except (EngineError, UsageError, StoreError) as error:
        _fail(str(error), EXIT_USAGE)
    except ServecheckError as error:
        _fail(str(error), EXIT_COULD_NOT_TELL)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        _fail(f"cannot write to standard output: {error.strerror}", EXIT_COULD_NOT_TELL)
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):  # typer would say 1, which means a finding
            raise
        let_go()
    finally:
        sys.excepthook = _crashed  # typer sets its own while it runs


def _fail(message: str, code: int) -> None:
    typer.echo(f"servecheck: {message}", err=True)
    raise SystemExit(code)


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exit as one that could not tell: what Python exits with by itself would be read as a finding."""
    traceback.print_exception(kind, error, trace)
    typer.echo("servecheck: this is a fault of servecheck, not of a server; please report the lines above", err=True)
    raise SystemExit(EXIT_COULD_NOT_TELL)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"servecheck {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# In the order of --help.
app.command("run")(running.run)
app.command("record")(running.record)
app.command("demo")(running.demo)
app.command("judge")(reading.judge)
app.command("expect")(reading.expect)
app.command("compare")(reading.compare)
app.command("history")(reading.history_)
app.command("report")(reading.report)
app.command("issues")(outside.issues)
app.command("recompiles")(outside.recompiles)
app.command("explain")(listing.explain)
app.command("schema")(written.schema)
app.command("lint")(written.lint)
app.command("init")(written.init)
app.command("selftest")(instrument.selftest)
app.command("mock")(instrument.mock)
app.add_typer(listing.lists, name="list")
