"""The three ways in which a command ends early on purpose; the command line maps them to exit codes."""


class Stop(Exception):
    """A command ends early on purpose."""

    everywhere = False
    """Whether all ranks of a run raise it, so that one of them shows it."""


class InputError(Stop):
    """Wrong input: one line that says where, what is wrong and what to do. Exit code 2; nothing was changed."""


class GuardStop(Stop):
    """A run stopped itself, for example on a non-finite loss. Exit code 3; the last good checkpoint stands."""


class SignalStop(Stop):
    """A run saved its state and stopped because a signal asked it to. Exit code 128 + signal number."""

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum
