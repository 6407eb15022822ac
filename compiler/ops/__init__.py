"""ONNX operators as tensor expressions, one function each."""
