"""A comparison -> one HTML file that needs nothing else: verdict, tables, figures to touch, and what to doubt."""

from glayers.report.html.page import write_report

__all__ = ["write_report"]
