#!/bin/sh
# A pull worker in shell with curl: QUVATLH_URL, QUVATLH_TOKEN, and one queue pattern as argument.
# After TERM it claims no more, and finishes what it was given; the next TERM ends it at once.
set -eu
name=${WORKER:-shell-$(uname -n)} lease=${LEASE:-30} stop='' polling=''
secret=$(mktemp) claimed=$(mktemp) said=$(mktemp) result=$(mktemp) # arguments of curl are for everybody to see
trap 'rm -f "$secret" "$claimed" "$said" "$result"' EXIT
trap 'trap "exit 1" INT TERM; stop=1; [ -z "$polling" ] || kill "$polling" 2>/dev/null || :' INT TERM
printf 'header = "Authorization: Bearer %s"\n' "$QUVATLH_TOKEN" >"$secret"

ended() { # how a process did; a signal interrupts the waiting alone
    status=0
    wait "$1" || status=$?
    [ "$status" -le 128 ] || { status=0 && wait "$1" || status=$?; }
}

ask() { # verb, body, file for the answer; what was said may be said again, and is until there is an answer
    while [ "$1$stop" != claim1 ]; do
        curl -sS --fail-with-body --retry 60 --retry-delay 1 -K "$secret" -o "$3" \
            -H 'Content-Type: application/json' -d "$2" "${QUVATLH_URL%/}/v1/work/$1" &
        [ "$1" != claim ] || polling=$!
        [ "$1$stop" != claim1 ] || kill $! 2>/dev/null || :
        ended $!
        polling=''
        case $status in [0-4] | 22) return "$status" ;; esac # 22: the answer is no; 1 to 4: curl cannot ask so
        sleep 1
    done
    exit 0
}

work() { # yours: the payload is standard input, JSON on standard output is the task's result
    sum=0
    for number in $(tr -c '0-9\n' ' '); do sum=$((sum + number)); done
    printf '{"sum": %s}' "$sum"
}

while :; do
    ask claim "{\"worker\": \"$name\", \"queues\": [\"${1:-*}\"], \"lease\": $lease}" "$claimed"
    # Of one action at a time plain tools find the parts; with jq at hand, use that.
    owned=$(sed -n 's/^{"actions":\[{\("action":"a[0-9]*","token":[0-9]*\),.*/\1/p' "$claimed")
    [ -n "$owned" ] || continue
    sed 's/.*,"payload"://; s/}\]}$//' "$claimed" | work >"$result" &
    working=$!
    while sleep "$((lease / 3))"; do # where there is a code it is gone, or another's
        ask renew "{$owned}" "$said" || :
        case $(cat "$said") in *'"code"'*) kill "$working" ;; esac
    done >/dev/null 2>&1 &
    renewing=$!
    ended "$working"
    if [ "$status" = 0 ]; then
        ask finish "{$owned, \"result\": $(cat "$result")}" /dev/null || true # another's by now, perhaps
    else
        ask fail "{$owned, \"error\": \"it failed\"}" /dev/null || true
    fi
    kill "$renewing" 2>/dev/null || true
done
