"""A small service: logits in, calibrated probabilities out.

It needs FastAPI, NumPy and safetensors, but no torch.

Run: MODEL=model.safetensors uvicorn app:app --port 8000
"""

import os
from typing import Annotated

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import glayers

MOST_ROWS = 10_000
Row = Annotated[list[float], Field(min_length=1)]

calibrator = glayers.load(os.environ["MODEL"])
app = FastAPI(title="Calibrated probabilities")


class Logits(BaseModel):
    """Rows of logits in the order of the classes that the calibrator was fitted on."""

    logits: Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]


class Probabilities(BaseModel):
    """Calibrated probabilities, one row for each row of logits."""

    probabilities: list[list[float]]
    class_names: list[str] | None


@app.post("/calibrate")
def calibrate(rows: Logits) -> Probabilities:
    """Return calibrated probabilities."""
    try:
        calibrated = calibrator.predict_proba(rows.logits)
    except glayers.GlayersError as error:
        raise HTTPException(422, str(error)) from error
    names = calibrator.class_names_
    return Probabilities(
        probabilities=calibrated.tolist(), class_names=names and list(names)
    )


@app.get("/health")
def health() -> dict[str, object]:
    """Say which calibrator is served."""
    return {
        "calibrator": calibrator.diagnostics_.method,
        "classes": len(calibrator.classes_),
        **calibrator.versions_,
    }
