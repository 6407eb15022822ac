"""Graph passes over onnx-ir, in the order that stages.py lists."""
