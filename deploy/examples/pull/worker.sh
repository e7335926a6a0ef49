#!/bin/sh
# A pull worker in shell with curl: QUVATLH_URL, QUVATLH_TOKEN, and one queue pattern as argument.
set -eu
name=${WORKER:-shell-$(uname -n)}
secret=$(mktemp) # since arguments of curl are for everybody to see
trap 'rm -f "$secret"' EXIT
trap 'exit 0' INT TERM
printf 'header = "Authorization: Bearer %s"\n' "$QUVATLH_TOKEN" >"$secret"

ask() { # verb, body; what was said may be said again
    curl -sS --fail-with-body --retry 60 --retry-delay 1 --retry-connrefused -K "$secret" \
        -H 'Content-Type: application/json' -d "$2" "${QUVATLH_URL%/}/v1/work/$1"
}

work() { # yours: the payload is standard input, JSON on standard output is the task's result
    sum=0
    for number in $(tr -c '0-9\n' ' '); do sum=$((sum + number)); done
    printf '{"sum": %s}' "$sum"
}

while claimed=$(ask claim "{\"worker\": \"$name\", \"queues\": [\"${1:-*}\"], \"wait\": \"20s\", \"lease\": \"30s\"}"); do
    # Of one action at a time plain tools find the parts; with jq at hand, use that.
    owned=$(printf '%s' "$claimed" | sed -n 's/^{"actions":\[{\("action":"a[0-9]*","token":[0-9]*\),.*/\1/p')
    [ -n "$owned" ] || continue
    (while sleep 10; do ask renew "{$owned}"; done) >/dev/null & # a third of the lease
    renewing=$!
    if result=$(printf '%s' "$claimed" | sed 's/.*,"payload"://; s/}\]}$//' | work); then
        ask finish "{$owned, \"result\": $result}" >/dev/null
    else
        ask fail "{$owned, \"error\": \"it failed\"}" >/dev/null
    fi
    kill "$renewing" 2>/dev/null || true
done
