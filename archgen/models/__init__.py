"""Networks: one of the zoo or an ONNX file, opened with every shape bound, or refused in words.

errors             what can be wrong with a model that was asked for
damage             a file that parses as ONNX and cannot be a network
binding            a size for every input dimension
weights            weights rounded to a microscaling format
load               all of it, from a name or path; what it needs at least of DRAM
"""
