#!/usr/bin/env bash
# Makes the shipped cohort, seedbed/laws/cohort.json: about half an hour on one core. Run it in a checkout's root:
#     recipes/cohort/make.sh [FOLDER OF THE RUNS] [COHORT]
# Six decoders, two designs in three sizes, a seed each, on the text that comes with Python; then their measures.
# Killed at any moment, the same command goes on.
set -euo pipefail
runs=${1:-runs/cohort}
cohort=${2:-seedbed/laws/cohort.json}
export OMP_NUM_THREADS=1

# the quickstart's text, tokenizer and store
python -c '
import sys
from pathlib import Path
from seedbed.cli.quickstart import corpus
from seedbed.config import Config
corpus(Path(sys.argv[1]), Config.load("recipes/cohort/gpt2.yaml"))
' "$runs"

trained=()
for design in gpt2 gated; do
  for size in "0 6 96" "1 8 96" "2 6 128"; do
    read -r seed layers width <<< "$size"
    run=$runs/$design-${layers}x$width
    seedbed train "recipes/cohort/$design.yaml" run.dir="$run" run.seed="$seed" data.store="$runs/store" \
      model.n_layers="$layers" model.d_model="$width"
    trained+=("$run")
  done
done

seedbed analyze cohort "${trained[@]}" -o "$cohort" --overwrite \
  --note "recipes/cohort/make.sh: two designs in three sizes, 1.4M tokens each of the text that comes with Python"
