"""Loop nests over tensors with affine accesses: values, text, interpreter, rewrites."""
