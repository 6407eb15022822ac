#!/bin/sh
# What a pipeline runs: the study within its budgets, then what changed since the last good one.
#
#     sh studies/ci/gate.sh [BASELINE]
#
# BASELINE is the folder of a study that was accepted; without one only budgets are checked. Ends
# with archgen's exit code (archgen explain codes).
set -e
here=$(dirname "$0")
archgen study mcu-npu --model squeezenet:image=32 --effort 0 --no-plots --out candidate \
    --budget "$here/budgets.yaml" --junit candidate/points.xml
if [ -n "$1" ]; then
    archgen compare "$1" candidate --fail-if-worse latency:2%,energy:5% --junit candidate/changes.xml
fi
