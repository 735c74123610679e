#!/usr/bin/env bash
# Whole runs of `deltanet train`: killed at random moments and resumed, interrupted politely, spread over processes.
# usage: train_runs.sh kill|signal|mpi PROGRAM [MPIRUN]
set -euo pipefail
what=$1 program=$2 mpirun=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
seq 1 4000 > "$work/data.txt"
cat > "$work/run.toml" <<TOML
data = "$work/data.txt"
steps = 50
sequence_length = 64
batch_size = 4
micro_batch = 2
lr = 1e-3
warmup = 5
precision = "f32"
threads = 1
log_every = 1
eval_every = 10
eval_batches = 1
checkpoint_every = 3
[model]
model_type = "dgps"
row = "pgdn"
hidden_size = 64
num_hidden_layers = 2
num_heads = 2
head_dim = 32
intermediate_size = 128
vocab_size = 256
TOML

# Everything that must be the same bit for bit: all but the speed.
results() { sed 's/"tokens_per_second":[^,}]*//' "$work/$1/metrics.jsonl"; }
train() { "$program" train "$work/run.toml" --out "$work/$1" "${@:2}" > "$work/log" 2>&1; }

case $what in
  kill)
    train straight
    [ "$(results straight | wc -l)" = 50 ]
    kills=0
    # Later and later, so that it comes to an end on a slow machine too.
    for i in $(seq 1 200); do
      "$program" train "$work/run.toml" --out "$work/killed" --resume > "$work/log" 2>&1 &
      pid=$!
      sleep "0.$(printf %02d $((RANDOM % 30)))"
      sleep "$((i / 20))"
      if kill -9 "$pid" 2> /dev/null; then kills=$((kills + 1)); fi
      if wait "$pid" 2> /dev/null; then break; fi
    done
    echo "killed $kills times"
    diff <(results straight) <(results killed)
    ;;
  signal)
    train straight
    "$program" train "$work/run.toml" --out "$work/stopped" > "$work/log" 2>&1 &
    pid=$!
    for _ in $(seq 1 600); do
      [ "$(cat "$work/stopped/metrics.jsonl" 2> /dev/null | wc -l)" -ge 4 ] && break
      sleep 0.05
    done
    kill -TERM "$pid"
    wait "$pid"  # exit status 0
    train stopped --resume
    diff <(results straight) <(results stopped)
    ;;
  mpi)
    train straight
    "$mpirun" -n 2 --oversubscribe --allow-run-as-root "$program" train "$work/run.toml" --out "$work/two"
    python3 - "$work/straight/metrics.jsonl" "$work/two/metrics.jsonl" <<'PY'
import json, sys
one, two = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert len(one) == len(two) == 50
worst = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(one, two))
print("largest relative difference of the losses:", worst)
assert worst <= 1e-4
PY
    # A checkpoint of two processes goes on in one, and an error in one ends all.
    [ "$(cat "$work/two/last")" = 50 ]
    if "$mpirun" -n 2 --oversubscribe --allow-run-as-root "$program" train "$work/run.toml" --out "$work/two" \
      > "$work/log" 2>&1; then exit 1; fi
    grep -q "process 0 of 2: .*holds a run already" "$work/log"
    train two --resume
    ;;
esac
