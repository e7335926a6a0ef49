#!/bin/sh
# A pull worker in shell with curl: QUVATLH_URL, QUVATLH_TOKEN, and one queue pattern as argument.
set -eu
name=${WORKER:-shell-$(uname -n)}
lease=${LEASE:-30}
secret=$(mktemp) result=$(mktemp) # arguments of curl are for everybody to see
trap 'rm -f "$secret" "$result"' EXIT
trap 'exit 0' INT TERM
printf 'header = "Authorization: Bearer %s"\n' "$QUVATLH_TOKEN" >"$secret"

ask() { # verb, body; what was said may be said again, and is until there is an answer
    while :; do
        status=0
        said=$(curl -sS --fail-with-body --retry 60 --retry-delay 1 -K "$secret" \
            -H 'Content-Type: application/json' -d "$2" "${QUVATLH_URL%/}/v1/work/$1") || status=$?
        case $status in [0-4] | 22) break ;; esac # 22: the answer is no; 1 to 4: curl cannot ask so
        sleep 1
    done
    printf '%s' "$said"
    return "$status"
}

work() { # yours: the payload is standard input, JSON on standard output is the task's result
    sum=0
    for number in $(tr -c '0-9\n' ' '); do sum=$((sum + number)); done
    printf '{"sum": %s}' "$sum"
}

while :; do
    claimed=$(ask claim "{\"worker\": \"$name\", \"queues\": [\"${1:-*}\"], \"lease\": $lease}")
    # Of one action at a time plain tools find the parts; with jq at hand, use that.
    owned=$(printf '%s' "$claimed" | sed -n 's/^{"actions":\[{\("action":"a[0-9]*","token":[0-9]*\),.*/\1/p')
    [ -n "$owned" ] || continue
    printf '%s' "$claimed" | sed 's/.*,"payload"://; s/}\]}$//' | work >"$result" &
    working=$!
    while sleep "$((lease / 3))"; do # where there is a code it is gone, or another's
        case $(ask renew "{$owned}") in *'"code"'*) kill "$working" ;; esac
    done >/dev/null 2>&1 &
    renewing=$!
    if wait "$working"; then
        ask finish "{$owned, \"result\": $(cat "$result")}" >/dev/null || true # another's by now, perhaps
    else
        ask fail "{$owned, \"error\": \"it failed\"}" >/dev/null || true
    fi
    kill "$renewing" 2>/dev/null || true
done
