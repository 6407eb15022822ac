"""The retargeted compiler: ONNX model and architecture in, verified instruction streams out.

`pipeline` is the flow, stage by stage, `options` what each stage may be told, and `api` all that
others see of the compiler; which room may import which says the contract in `pyproject.toml`.
"""
