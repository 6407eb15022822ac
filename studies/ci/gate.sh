#!/bin/sh
# What a pipeline runs: machines held against what can be built, the study within its budgets, then
# what changed since the last good one.
#
#     sh studies/ci/gate.sh [BASELINE]
#
# BASELINE is the folder of a study that was accepted; without one only budgets are checked. Both
# gates are asked, so candidate/points.xml and candidate/changes.xml are there whichever of them
# stops. Ends with archgen's exit code, of two the one that comes first in `archgen explain codes`.
here=$(dirname "$0")
archgen check mcu-npu || exit $? # a study of what nobody builds has an answer, and ends with 0
archgen study mcu-npu --model squeezenet:image=32 --effort 0 --no-plots --out candidate \
    --budget "$here/budgets.yaml" --junit candidate/points.xml
code=$?
case $code in
2 | 130) exit $code ;; # wrong input, interrupted: there is no study to compare
esac
if [ -n "$1" ]; then
    archgen compare "$1" candidate --fail-if-worse latency:2%,energy:5% --junit candidate/changes.xml
    worse=$?
    if [ $code -eq 0 ] || { [ $worse -ne 0 ] && [ $worse -lt $code ]; }; then code=$worse; fi
fi
exit $code
