"""What can go wrong, by name: each error says what was expected, what came, and the way out."""


class GlayersError(ValueError):
    """Any complaint of this library about what it was given."""


class BadPredictions(GlayersError):
    """Logits, probabilities, labels, weights or groups that cannot be what they are said to be."""


class BadFile(GlayersError):
    """A file that cannot be read or written, or that asks for something we refuse to do."""


class GlayersWarning(UserWarning):
    """Something to know about, where going on is still right."""
