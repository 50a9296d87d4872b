#!/usr/bin/env bash
# Runs the backdoor experiments and puts their records beside this file. Takes most of an hour on
# two cores, wants 9 GB of disk for the history, and goes on where it was if interrupted.
# Usage: PDLRECOVER_DATA=data results/backdoor/run.sh
set -euo pipefail
here=$(dirname "$0")
run() { # name, further flags
  local name=$1 dataset=$2
  shift 2
  pdlrecover simulate --config "$here/$dataset.toml" --out "out/backdoor/$name" "$@"
  cp "out/backdoor/$name/result.json" "$here/$name.json"
}
for seed in 0 1 2; do
  for dataset in mnist fashion-mnist har; do
    run "$dataset-shares-$seed" $dataset --seed $seed --methods retrain,pdlrecover,retrain-k
  done
done
for dataset in mnist fashion-mnist har; do
  run "$dataset-clear-0" $dataset --seed 0 --clear
done
