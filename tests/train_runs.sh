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
wait_for_steps() {
  for _ in $(seq 1 600); do
    [ "$(cat "$work/$1/metrics.jsonl" 2> /dev/null | wc -l)" -ge "$2" ] && break
    sleep 0.05
  done
}
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
    wait_for_steps stopped 4
    kill -TERM "$pid"
    wait "$pid"  # exit status 0
    train stopped --resume
    diff <(results straight) <(results stopped)
    # A terminal that is closed, so that nothing can be said any more.
    python3 - "$program" train "$work/run.toml" --out "$work/closed" <<'PY'
import os, pty, sys, time
out = sys.argv[-1]
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
for _ in range(6000):
    if os.path.exists(out + "/metrics.jsonl") and len(open(out + "/metrics.jsonl").readlines()) >= 4:
        break
    time.sleep(0.005)
os.close(terminal)
assert os.waitpid(child, 0)[1] == 0
PY
    train closed --resume
    diff <(results straight) <(results closed)
    # A second signal does not wait for the end of the step, which takes seconds here.
    "$program" train "$work/run.toml" --out "$work/left" --set batch_size=1024 > "$work/log" 2>&1 &
    pid=$!
    for _ in $(seq 1 600); do
      grep -q "available" "$work/log" && break  # the table before the first step
      sleep 0.05
    done
    kill -TERM "$pid"
    sleep 0.2
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    [ "$status" = 143 ]
    ;;
  mpi)
    train straight
    two_processes=("$mpirun" -n 2 --oversubscribe --allow-run-as-root "$program" train "$work/run.toml")
    same_losses() {
      python3 - "$work/straight/metrics.jsonl" "$work/$1/metrics.jsonl" <<'PY'
import json, sys
one, two = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert len(one) == len(two) == 50
worst = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(one, two))
print("largest relative difference of the losses:", worst)
assert worst <= 1e-4
PY
    }
    "${two_processes[@]}" --out "$work/two" > "$work/log" 2>&1
    grep -q "^step 50/50 " "$work/log"
    same_losses two
    # An error in one ends all.
    if "${two_processes[@]}" --out "$work/two" > "$work/log" 2>&1; then exit 1; fi
    grep -q "process 0 of 2: .*holds a run already" "$work/log"
    # So does the death of one; another number of processes goes on from the last checkpoint.
    "${two_processes[@]}" --out "$work/died" > "$work/log" 2>&1 &
    job=$!
    wait_for_steps died 8
    for process in /proc/[0-9]*; do
      if [ "$(readlink "$process/exe")" = "$program" ] && grep -q "$work/died" "$process/cmdline"; then
        kill -9 "${process#/proc/}"
        break
      fi
    done
    if wait "$job"; then exit 1; fi
    grep -q "signal 9" "$work/log"
    train died --resume
    same_losses died
    # mpirun passes SIGUSR1 on, which ends the step and saves.
    "${two_processes[@]}" --out "$work/asked" > "$work/log" 2>&1 &
    job=$!
    wait_for_steps asked 4
    kill -USR1 "$job"
    wait "$job"  # exit status 0
    grep -q "interrupted after step" "$work/log"
    "${two_processes[@]}" --out "$work/asked" --resume > "$work/log" 2>&1
    same_losses asked
    # Processes that do not see the same folder do not go on from different places.
    mkdir "$work/elsewhere"
    "$program" train "$work/run.toml" --out "$work/here/run" --set checkpoint_every=0 --steps 5 > "$work/log" 2>&1
    one="-n 1 $program train $work/run.toml --out run --steps 5 --resume"
    # shellcheck disable=SC2086
    if "$mpirun" --oversubscribe --allow-run-as-root -wdir "$work/here" $one : -wdir "$work/elsewhere" $one \
      > "$work/log" 2>&1; then exit 1; fi
    grep -q "starts from step 0, the first one from step 5" "$work/log"
    ;;
esac
