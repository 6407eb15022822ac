"""Loop nests over tensors with affine accesses: values, text, meaning, rewrites."""
