"""The methods there are -> a table: what each is, what it cannot do, whether it needs torch."""

from importlib.util import find_spec

from glayers.cli.method_notes import METHODS
from glayers.cli.options import AsJson
from glayers.cli.screen import show, show_json
from glayers.cli.verb import verb
from glayers.report.tables import method_table


@verb("glayers methods", "glayers methods --json")
def methods(as_json: AsJson = False) -> None:
    """List the methods: what each is, what it cannot do, and whether fitting it needs torch."""
    if as_json:
        show_json({name: note._asdict() for name, note in METHODS.items()})
        return
    here = "which is installed" if find_spec("torch") else 'which is not installed: pip install "glayers[fit]"'
    show(method_table(METHODS), "", f"torch is needed by some to fit, {here}; none needs it to predict.")
