"""From an ONNX file to a normalized graph whose every value has a static shape."""
