# shellcheck shell=bash disable=SC2154 # variables of on_create.sh and parameters.py
# Slurm on a HyperPod node: settings on the controller, daemons and health checks elsewhere.
# Sourced by on_create.sh.

set_up_slurm() {
    case $ROLE in
    controller) set_up_controller ;;
    compute) set_up_compute ;;
    login) start_daemon slurmd ;; # fetches slurm.conf; it is no node of the cluster
    esac
}

# HyperPod's agent writes slurm.conf; ours are added to it, once.
set_up_controller() {
    await_slurm_conf
    put_block "$slurm_conf" <<CONF
# Health checks of this project: drain what is ill, let go what is well again.
HealthCheckProgram=$health_program
HealthCheckInterval=300
HealthCheckNodeState=ANY,CYCLE
# The coordinator of a job starts lost ranks again in seconds; a lost job is followed by another.
KillWait=60
SlurmdTimeout=60
CONF
    start_daemon slurmctld
    run scontrol reconfigure
}

set_up_compute() {
    local source=$here/node-health
    [[ -f $source ]] || source=$here/../slurm/node-health
    run install -D -m 0755 "$source" "$health_program"
    put /etc/default/dsm-health <<CONF
DSM_PROJECT=$(printf %q "$PROJECT")
DSM_HEALTH_CONFIG=/etc/dsm/health.yaml
export SLURM_CONF=/var/spool/slurmd/conf-cache/slurm.conf
CONF
    put /etc/dsm/health.yaml <<CONF
shared: [$MOUNT_POINT]
mounts: [$MOUNT_POINT]
gpus: $GPUS
$(isolation)
CONF
    start_daemon slurmd --conf-server "$CONTROLLERS"
}

# A reason of this form makes HyperPod replace the instance (with node recovery on Automatic).
isolation() {
    if [[ $REPLACE_NODES == true ]]; then
        printf 'isolate_state: DOWN\nisolate_reason: "Action:Replace"\n'
    fi
}

await_slurm_conf() {
    if $dry_run; then
        printf 'would wait for a controller of %s in %s\n' "$CONTROLLERS" "$slurm_conf"
        return
    fi
    local tries address
    for ((tries = 0; tries < 60; tries++)); do
        for address in ${CONTROLLERS//,/ }; do
            ! grep -qF -- "$address" "$slurm_conf" 2>/dev/null || return 0
        done
        sleep 5
    done
    fail "no controller of $CONTROLLERS came up in $slurm_conf in 5 minutes"
}

# start_daemon NAME [OPTION...]: the options become those of its systemd unit.
start_daemon() {
    local name=$1
    shift
    if (($#)); then
        put "/etc/systemd/system/$name.service.d/dsm.conf" <<CONF
[Service]
Environment="${name^^}_OPTIONS=$*"
CONF
        run systemctl daemon-reload
    fi
    run systemctl enable --now "$name"
}
