"""Checked answers: whether a program computes what its network should compute.

reference          the network by ONNX Runtime, on seeded inputs
stagewise          every operator on the values that the program itself had before
deviation, verify  what is stored beside what it should be; the verdict
quantize           the int8 network that is compiled (`int8` is the recipe, `quantized_parts`
                   what stays as it is, `ranges` of values, `linear_quantizer` ONNX Runtime's)
widen              16-bit floats as float32, for what ONNX Runtime cannot run
"""
