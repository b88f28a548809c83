#!/bin/sh
# A whole check on a machine with a GPU: the library loads, the GPU tests pass, the short benchmark.
#
#   bench/gpu_check.sh OUT [COMMIT]
#
# Run in the checkout, with the library built (build/libtl_topk.so, or installed) and its Python
# packages importable. OUT gets info.json, tests.xml, short.json and summary.json. COMMIT is
# recorded where git cannot tell. Every step runs; the exit status is 1 if one failed.
set -u
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
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

failed=0
steps=
step load loads
step tests "$python" -m pytest -q -m gpu -p no:cacheprovider --junitxml "$out/tests.xml"
step bench "$python" -m bench run short --output "$out/short.json"
printf '{%s}\n' "$steps" | tee "$out/summary.json"
exit $failed
