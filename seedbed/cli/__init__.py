"""The command line: one thin command a stage. Help must stay light, so heavy rooms are imported inside commands."""

import sys


def main() -> None:
    """Run the command of sys.argv and exit. Ctrl-C while the commands themselves are imported ends with 130, silently.

    What comes later is for :func:`seedbed.cli.app.run`.
    """
    try:
        from seedbed.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
