#!/usr/bin/env bash
# Runs the backdoor experiments and puts their records beside this file: about an hour on two
# cores. As many runs go at a time as there are cores, each with one thread and 9 GB of disk for its
# history; what was interrupted goes on where it was.
# Usage: PDLRECOVER_DATA=data results/backdoor/run.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export here OMP_NUM_THREADS=1 PDLRECOVER_THREADS=1
run() { # dataset, mode, seed
  local name="$1-$2-$3" flags=()
  [ "$2" = clear ] && flags=(--clear) || flags=(--methods retrain,pdlrecover,retrain-k)
  pdlrecover simulate --config "$here/$1.toml" --seed "$3" "${flags[@]}" --out "out/backdoor/$name"
  cp "out/backdoor/$name/result.json" "$here/$name.json"
}
export -f run
{
  for seed in 0 1 2; do
    for dataset in mnist fashion-mnist har; do echo "$dataset shares $seed"; done
  done
  for dataset in mnist fashion-mnist har; do echo "$dataset clear 0"; done
} | xargs -P "$(getconf _NPROCESSORS_ONLN)" -L 1 bash -c 'run "$@"' run
