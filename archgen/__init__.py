"""archgen: describe an accelerator in YAML, compile a network for it, simulate, check, compare."""
