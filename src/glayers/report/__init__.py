"""Numbers -> people: tables, and later figures and pages."""
