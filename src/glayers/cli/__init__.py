"""Words typed at a prompt -> one function each, and what it found on the screen or in a file.

`main` is the program; every verb is a function of its own name. Heavy libraries are imported inside these functions, so
that `glayers --help` answers at once.
"""

from glayers.cli.program import app, main

__all__ = ["app", "main"]
