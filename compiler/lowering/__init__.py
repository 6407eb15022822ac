"""From ONNX operators to loop nests."""
