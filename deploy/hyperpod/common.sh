# shellcheck shell=bash
# Words that the other lifecycle scripts share. Sourced, not run.

# What `--dry-run` shows instead of doing it.
dry_run=${dry_run:-false}

say() { printf '%s %s\n' "$(date '+%H:%M:%S')" "$*"; }

fail() {
    printf 'hyperpod: %s\n' "$*" >&2
    exit 1
}

# Do it, or say that it would be done.
run() {
    if $dry_run; then
        printf 'would run:'
        printf ' %q' "$@"
        printf '\n'
    else
        "$@"
    fi
}

# Standard input becomes the content of file $1, at once and only if it differs.
put() {
    local content
    content=$(cat)
    if [[ -f $1 && $(<"$1") == "$content" ]]; then
        return
    fi
    if $dry_run; then
        printf 'would write %s:\n' "$1"
        printf '%s\n' "$content" | sed 's/^/    /'
        return
    fi
    mkdir -p -- "$(dirname -- "$1")"
    printf '%s\n' "$content" >"$1.tmp" && mv -f -- "$1.tmp" "$1"
}

# The lines on standard input stand once in file $1, between two marks; other lines stay.
put_block() {
    local block rest
    block=$(cat)
    rest=$(sed '/^# dsm begin$/,/^# dsm end$/d' "$1" 2>/dev/null)
    printf '%s\n# dsm begin\n%s\n# dsm end\n' "$rest" "$block" | put "$1"
}
