"""Old place of these names, until every import has moved to glayers.predictions.formats."""

from glayers.predictions.formats import Source, read_parts, read_predictions, read_rows

__all__ = ["Source", "read_parts", "read_predictions", "read_rows"]
