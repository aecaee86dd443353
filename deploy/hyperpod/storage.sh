# shellcheck shell=bash disable=SC2154 # variables of on_create.sh and parameters.py
# The shared file system: FSx for Lustre at $MOUNT_POINT. Sourced by on_create.sh.

mount_storage() {
    if [[ -z $FSX_DNS || -z $FSX_NAME ]]; then
        say "no fsx_dns_name and fsx_mountname: $MOUNT_POINT is mounted by somebody else"
    else
        mount_lustre
    fi
    check_storage
}

mount_lustre() {
    local source=$FSX_DNS@tcp:/$FSX_NAME mounted
    mounted=$(mount_source "$MOUNT_POINT")
    if [[ $mounted == "$source" ]]; then
        say "$source is mounted"
    elif [[ -n $mounted ]]; then
        fail "$MOUNT_POINT holds $mounted, not $source: give dsm.mount_point another folder"
    else
        run modprobe lustre
        run mkdir -p -- "$MOUNT_POINT"
        # flock: runs and stages are locked by flock(2), on all nodes.
        run mount -t lustre -o noatime,flock "$source" "$MOUNT_POINT"
    fi
    # After a reboot no lifecycle script runs.
    put_block "$fstab" <<<"$source $MOUNT_POINT lustre noatime,flock,_netdev 0 0"
}

# What is mounted at folder $1, "" for nothing.
mount_source() { awk -v at="$1" '$2 == at { found = $1 } END { print found }' "$mounts"; }

mount_options() { awk -v at="$1" '$2 == at { found = $4 } END { print found }' "$mounts"; }

# A file system that takes no file or knows no locks shows here, not in the middle of a run.
check_storage() {
    if $dry_run; then
        printf 'would check that %s takes files and knows locks\n' "$MOUNT_POINT"
        return
    fi
    local probe=$MOUNT_POINT/.dsm-probe-$$
    printf 'probe' >"$probe" || fail "$MOUNT_POINT takes no file"
    sync -- "$probe" || fail "$MOUNT_POINT takes no fsync"
    flock --nonblock "$probe" true || fail "$MOUNT_POINT knows no locks: mount it with -o flock"
    rm -f -- "$probe"
    case ,$(mount_options "$MOUNT_POINT"), in
    *,localflock,*) fail "$MOUNT_POINT has locks of its own on each node: mount it with -o flock" ;;
    esac
}
