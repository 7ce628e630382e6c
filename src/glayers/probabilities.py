"""Old place of these names, until every import has moved to glayers.checks."""

from glayers.checks import HIGHEST, LOWEST, check_probability_rows, refuse_outside_unit_interval

__all__ = ["HIGHEST", "LOWEST", "check_probability_rows", "refuse_outside_unit_interval"]
