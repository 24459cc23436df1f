#!/bin/bash
# The training job of the scenarios: steps, saves, resumes from its newest checkpoint and exports its gauges.
#
# TRAINER_DIR        its folder: checkpoints/, control, <job id>.prom; what a rerun or a new job resumes from
# TRAINER_STEP_S     seconds per step (0.2)
# TRAINER_SAVE_EVERY steps between checkpoints (10)
# TRAINER_SAVE_S     seconds that a save takes (0.1)
# TRAINER_CONTROL    knobs from the start; the file `control`, once there, replaces them and is read at every step:
#                    fail (exit 1 now) · hang (no more steps) · no_save · max_step=N (exit 1 instead of step N+1)
set -u
cd "$TRAINER_DIR" || exit 2
mkdir -p checkpoints
step_s=${TRAINER_STEP_S:-0.2} save_every=${TRAINER_SAVE_EVERY:-10} save_s=${TRAINER_SAVE_S:-0.1}
step=0 saved=0 started=0 completed=0

log() { echo "$(date +%T) job $SLURM_JOB_ID run ${SLURM_RESTART_COUNT:-0}: $*"; }

knob() { [[ " $knobs" == *" $1"* ]]; }

put() {  # put FILE: standard input becomes FILE in one piece
    cat >"$1.part" && mv "$1.part" "$1"
}

export_gauges() {
    local job="{job=\"$SLURM_JOB_ID\"}"
    {
        echo "train_step$job $step"
        [ "$started" = 0 ] || echo "train_checkpoint_started_timestamp$job $started"
        [ "$completed" = 0 ] || echo "train_checkpoint_completed_timestamp$job $completed"
        [ "$saved" = 0 ] || echo "train_checkpoint_step$job $saved"
    } | put "$SLURM_JOB_ID.prom"
}

save() {
    started=$EPOCHREALTIME
    export_gauges
    sleep "$save_s"
    completed=$EPOCHREALTIME saved=$step
    echo "$saved $started $completed" | put "$(printf 'checkpoints/step-%08d' "$step")"
    log "saved step $step"
}

resume() {
    local newest=(checkpoints/step-????????)
    [ -e "${newest[-1]}" ] || return 0
    read -r saved started completed <"${newest[-1]}"
    step=$saved
}

resume
log "on $SLURM_JOB_NODELIST from step $step"
while :; do
    knobs=${TRAINER_CONTROL-}
    [ ! -e control ] || knobs=$(<control) knobs=${knobs//$'\n'/ }
    if knob fail; then log "told to fail"; exit 1; fi
    if [[ " $knobs" =~ \ max_step=([0-9]+) ]] && ((step >= BASH_REMATCH[1])); then log "stuck at step $step"; exit 1; fi
    sleep "$step_s"
    knob hang && continue
    ((step += 1))
    if ((step % save_every == 0)) && ! knob no_save; then save; fi
    export_gauges
done
