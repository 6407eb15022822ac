"""The retargeted compiler: ONNX model and architecture in, verified instruction streams out."""
