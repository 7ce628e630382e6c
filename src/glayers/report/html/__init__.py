"""A comparison -> one HTML file without other files: summary, tables, interactive figures, and checks of the data."""

from glayers.report.html.page import write_report as write_report
