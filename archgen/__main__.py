"""`python -m archgen`: the command without its script, which may not be on the path."""

from archgen.cli.main import main

main()
