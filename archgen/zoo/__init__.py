"""Published networks, built as valid ONNX with seeded, sensibly scaled weights."""
