#!/usr/bin/env bash
# What SageMaker HyperPod runs once on each new instance of a Slurm cluster, as root.
#
#   on_create.sh [--dry-run]     --dry-run prints what would be done and changes nothing
#
# Upload this folder, with deploy/slurm/node-health and a provisioning_parameters.json of your own in
# it, to the S3 prefix of the cluster's LifeCycleConfig. It mounts FSx for Lustre and checks it,
# starts Slurm with this project's health checks, and sets up metrics.
# docs/slurm.md tells the whole way.
#
# Environment: SAGEMAKER_RESOURCE_CONFIG_PATH (HyperPod sets it), PROVISIONING_PARAMETERS.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dry_run=false
case ${1:-} in
"") ;;
--dry-run) dry_run=true ;;
*)
    printf 'usage: %s [--dry-run]\n' "$0" >&2
    exit 2
    ;;
esac

resource_config=${SAGEMAKER_RESOURCE_CONFIG_PATH:-/opt/ml/config/resource_config.json}
parameters=${PROVISIONING_PARAMETERS:-$here/provisioning_parameters.json}
# Read by the sourced scripts; other places in tests.
slurm_conf=${SLURM_CONF:-/opt/slurm/etc/slurm.conf}
fstab=${DSM_FSTAB:-/etc/fstab}
mounts=${DSM_MOUNTS:-/proc/mounts}
health_program=/usr/local/sbin/dsm-health-program
export slurm_conf fstab mounts health_program

# shellcheck source=deploy/hyperpod/common.sh
source "$here/common.sh"
# shellcheck source=deploy/hyperpod/storage.sh
source "$here/storage.sh"
# shellcheck source=deploy/hyperpod/slurm.sh
source "$here/slurm.sh"
# shellcheck source=deploy/hyperpod/observability.sh
source "$here/observability.sh"

if [[ ! -f $resource_config ]]; then
    fail "$resource_config is missing: this is no HyperPod instance (set SAGEMAKER_RESOURCE_CONFIG_PATH)"
fi

# The address under which the cluster knows this instance: the first of its own that it lists.
find_settings() {
    local address
    for address in ${DSM_ADDRESS:-$(hostname -I)}; do
        if python3 "$here/parameters.py" "$resource_config" "$parameters" "$address" 2>"$errors"; then
            return
        fi
    done
    cat -- "$errors" >&2
    return 1
}

errors=$(mktemp)
trap 'rm -f -- "$errors"' EXIT
settings=$(find_settings) || fail "see above"
eval "$settings"
say "this is a $ROLE of group $GROUP"
mount_storage
set_up_slurm
set_up_observability
say "done"
