# What a contributor types; .ci/run is the whole of it, from nothing.

# List what there is
default:
    @just --list

# Lint, format, types and directions of imports
lint:
    ruff check .
    ruff format --check .
    mypy
    lint-imports

# The quick tests, or those given: just test tests/compiler
test *what:
    pytest {{what}}

# Documentation, processes, browser, fuzz, every machine; properties with many examples
slow *what:
    pytest -m slow {{what}}

# Everything but the main job
check: lint test

# What became of the replayed programs, by how many per cent; --write renews the table
replay *options:
    python tests/compiler/replay.py {{options}}

# Outputs and generated parts of the documentation
docs:
    python tests/docs/pages.py

# The README's main job, and its table and pictures
results:
    archgen study archs/*.yaml --model resnet50 --out archgen-out
    python docs/results.py archgen-out

# Mutants of cost and search that no test notices
mutation *options:
    python studies/benchmarks/mutation.py {{options}}
