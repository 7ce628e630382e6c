"""Errors and warnings by name: each message says what was expected, what was given, and what to do."""


class GlayersError(ValueError):
    """Base class of all errors that this library raises about its input."""


class BadPredictions(GlayersError):
    """Logits, probabilities, labels, weights, groups or settings with impossible shapes or values."""


class BadFile(GlayersError):
    """A file that cannot be read or written, or whose contents are refused."""


class GlayersWarning(UserWarning):
    """Something the user should know, although the result is valid."""
