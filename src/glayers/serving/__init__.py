"""Fitted maps at work: loading, predicting with arrays of any library, ONNX. Needs NumPy and safetensors only."""
