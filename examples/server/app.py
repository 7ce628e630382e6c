"""A small service: rows in, calibrated probabilities out.

It serves every saved calibrator: of classes, of several labels, of groups and of
confidences. It needs FastAPI, NumPy and safetensors, but no torch.

Run: MODEL=model.safetensors uvicorn app:app --port 8000
"""

import os
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import glayers

MOST_ROWS = 10_000
Row = Annotated[list[float], Field(min_length=1)]
Rows = Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]
Numbers = Annotated[list[float], Field(min_length=1, max_length=MOST_ROWS)]

calibrator = glayers.load(os.environ["MODEL"])
by_group = isinstance(calibrator, glayers.GroupCalibrator)
app = FastAPI(title="Calibrated probabilities")


class Request(BaseModel):
    """Rows as the calibrator takes them, with groups if it was fitted by group."""

    logits: Rows | None = None
    probabilities: Rows | None = None
    confidence: Numbers | None = None
    groups: list[str | int] | None = None


class Probabilities(BaseModel):
    """Calibrated probabilities of classes or labels, row by row."""

    probabilities: list[list[float]]
    class_names: list[str] | None


@app.post("/calibrate")
def calibrate(request: Request) -> Probabilities:
    """Return probabilities; for confidences, of a wrong and a right answer."""
    given = request.model_dump(exclude_none=True)
    expected = {calibrator.inputs, "groups"} if by_group else {calibrator.inputs}
    if given.keys() != expected:
        raise HTTPException(422, f"expected {sorted(expected)}; got {sorted(given)}")
    arguments: list[Any] = [given[calibrator.inputs]]
    if by_group:
        arguments.append(request.groups)
    try:
        calibrated = calibrator.predict_proba(*arguments)
    except glayers.GlayersError as error:
        raise HTTPException(422, str(error)) from error
    names = calibrator.class_names_
    return Probabilities(
        probabilities=calibrated.tolist(), class_names=names and list(names)
    )


@app.get("/health")
def health() -> dict[str, object]:
    """Say which calibrator is served, and what a request has to hold."""
    return {
        "calibrator": calibrator.diagnostics_.method,
        "classes": len(calibrator.classes_),
        "inputs": calibrator.inputs,
        "by_group": by_group,
        **calibrator.versions_,
    }
