"""Exceptions, in the words of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._lab import Run


class Error(Exception):
    """An error of this package; those of cached files are ``OSError`` and ``ValueError``."""


class ScenarioError(Error, ValueError):
    """A scenario has mistakes.

    The text shows each as a compiler would: file, line, and the way out.

    Attributes
    ----------
    mistakes : list of dict
        ``file``, ``line`` and ``column`` (from 1), ``title``, ``label``, ``help``. Empty where a
        setting fits nowhere.
    """

    def __init__(self, text: str, mistakes: list[dict[str, Any]] | None = None) -> None:
        super().__init__(text, mistakes or [])
        self.mistakes = mistakes or []

    def __str__(self) -> str:
        return str(self.args[0])


class UsageError(Error, ValueError):
    """A call asks for what does not exist, or does not fit together."""


class RunError(Error, RuntimeError):
    """A run did not come to its end."""


class Interrupted(KeyboardInterrupt):
    """Runs were interrupted.

    Attributes
    ----------
    run : Run
        The runs that had ended.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted; the runs that had ended are in the exception's `run`: {run!r}")
        self.run = run
