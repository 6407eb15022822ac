"""The command line: one module per verb, mounted by `archgen.cli.main`."""
