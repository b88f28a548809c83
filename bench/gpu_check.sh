#!/bin/sh
# A whole check on a machine with a GPU: the library loads, the GPU tests pass, the short benchmark.
#
#   bench/gpu_check.sh OUT [COMMIT]
#
# Run in the checkout, with the library built (build/libtl_topk.so, or installed) and its Python
# packages importable. OUT gets info.json, tests.xml and tests.log, the same of tests that have the
# GPU for themselves (alone), short.json and summary.json. COMMIT is recorded where git cannot tell.
# Every step runs; the exit status is 1 if one failed. TEST_PROCESSES: by how many the tests run
# where pytest-xdist can be imported; 8 if not given. Logs name what failed as it does: a run that is
# cut short keeps that.
set -u
[ $# -ge 1 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
export BENCH_COMMIT="${2:-}"
cd "$(dirname "$0")/.." || exit 2
python=${PYTHON:-python3}

step() { # NAME COMMAND...
  name=$1
  shift
  begun=$(date +%s)
  if "$@"; then passed=true; else passed=false; failed=1; fi
  steps="${steps:+$steps,}\"$name\": {\"passed\": $passed, \"seconds\": $(($(date +%s) - begun))}"
}

loads() {
  "$python" -m tl_topk info --json >"$out/info.json" || return 1
  "$python" -c 'import json, sys
state = json.load(open(sys.argv[1]))["backends"]["dsmem"]
sys.exit(f"dsmem: {state}" if state != "available" else 0)' "$out/info.json"
}

gpu_tests() { # SUITE ARGUMENT...
  suite=$1
  shift
  "$python" -m pytest -v -rf -m gpu -p no:cacheprovider \
    --junitxml "$out/$suite.xml" "$@" >"$out/$suite.log"
  status=$?
  tail -n 40 "$out/$suite.log"
  return $status
}

alone="tests/gpu/test_memory.py tests/gpu/test_endurance.py"
others=
for file in $alone; do others="$others --ignore $file"; done
if "$python" -c 'import xdist' 2>/dev/null; then others="$others -n ${TEST_PROCESSES:-8}"; fi

failed=0
steps=
step load loads
step tests gpu_tests tests tests $others
step alone gpu_tests alone $alone
step bench "$python" -m bench run short --output "$out/short.json"
printf '{%s}\n' "$steps" | tee "$out/summary.json"
exit $failed
