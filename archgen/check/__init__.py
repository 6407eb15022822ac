"""Checked answers: whether a program computes what its network should compute.

reference           the network by ONNX Runtime, on seeded inputs
verify              every operator on the values that the program itself had before, what is stored
                    beside what it should be; the verdict
quantize            the int8 network that is compiled (`int8` is the recipe, `quantizer_input` what
                    goes into it, `calibration` samples and ranges of values)
"""
