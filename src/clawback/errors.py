"""The tree of Clawback's errors. Each message says what happened, to what, and what to do about it.

Only the CLI and the HTTP layer turn these into exit codes and statuses.
"""


class ClawbackError(Exception):
    """Base of everything that Clawback raises on purpose."""


class UsageError(ClawbackError):
    """The call was wrong: a value out of range, an unknown name. Exit code 2."""


class NotFound(UsageError):
    """The turn, version, run or file that was named does not exist."""


class ConfigError(UsageError):
    """``config.toml`` cannot be read or holds a value that cannot be used."""


class StoreError(ClawbackError):
    """The database cannot be used: damaged, newer than this program, locked for too long, disk full."""


class StoreBusy(StoreError):
    """Another process holds the database's write lock for longer than the caller waits. Nothing was written."""


class MissingExtra(ClawbackError):
    """A part that is not installed is needed; the message names the extra to install."""


class ModelError(ClawbackError):
    """A model or adapter folder is missing, damaged, unsafe, or does not fit its base."""


class TrainingError(ClawbackError):
    """A training run could not start or could not go on."""


class NothingToGain(TrainingError):
    """A run that would hardly make a better version than the live one. Asked for all the same, it starts."""


class NothingRead(NothingToGain):
    """A run whose ratings cannot be told from chance yet, and that has nothing else to learn from. Asked for all the same, it starts."""


class DoesNotFit(TrainingError):
    """A run that would take more time or memory than there is, even at its smallest. A prompt can be learned instead."""


class Interrupted(TrainingError):
    """A run could not continue, for an external reason: a hosted trainer is gone, a process died, a limit was reached. Its checkpoint is
    kept, and it can be resumed."""


class Stopped(ClawbackError):
    """A run ended because a person asked it to. Its checkpoint is kept, and it can be resumed."""


class JudgeError(ClawbackError):
    """The judge model cannot be asked: no such address, key or model, or it goes on refusing."""


class Busy(ClawbackError):
    """Something else holds what is needed: another run is training."""


class SandboxError(ClawbackError):
    """A box could not be opened, or its walls could not be put up; nothing was run in it. No fault of the program in it."""


class SandboxRefused(SandboxError, UsageError):
    """This machine has no isolation that the call accepts, or the call asked for something that must not be done."""
