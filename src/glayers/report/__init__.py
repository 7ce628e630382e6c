"""Numbers -> people: curves, figures, terminal tables and the HTML page."""
