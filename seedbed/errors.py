"""The deliberate ways in which a command ends early; the command line maps them to exit codes."""


class Stop(Exception):
    """A command ends early on purpose."""

    elsewhere = False
    """Whether another rank of the run shows it. Set by the ranks on any exception that came from another one."""


class InputError(Stop):
    """Wrong input: one line that says where, what is wrong and what to do. Exit code 2; nothing was changed."""


class GuardStop(Stop):
    """A run stopped itself, for example on a non-finite loss, on all ranks alike. Exit code 3; the last good
    checkpoint stands.
    """


class SignalStop(Stop):
    """A run saved its state and stopped because a signal asked it to, on all ranks alike. Exit code 128 + number."""

    def __init__(self, signum: int, message: str):
        super().__init__(signum, message)  # both, so that it can be sent to other ranks
        self.signum = signum

    def __str__(self) -> str:
        return self.args[1]


class LostRank(Stop):
    """Another rank has died or is not coming on. Exit code 75, the system's word for "try again": the last checkpoint
    stands.
    """
