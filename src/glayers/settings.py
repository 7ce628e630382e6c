"""Old place of these names, until every import has moved to glayers.checks."""

from glayers.checks import class_numbers, number_between, whole_number

__all__ = ["class_numbers", "number_between", "whole_number"]
