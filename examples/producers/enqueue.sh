#!/bin/sh
# Ask the model "digits" which digit digit.json shows, with nothing but redis-cli.
# Prints the reply as JSON. Exit codes: 0 answered, 1 answered with an error, 75 no reply in time.
set -eu

# redis-cli takes redis:// and rediss:// addresses; -e makes it fail when Redis refuses.
url=${INFERQ_REDIS_URL:-redis://localhost:6379/0}
pixels=$(tr -d ' \n' <"$(dirname "$0")/digit.json")
# An id names one request for as long as its reply is kept: never use one twice.
id="shell-$(date +%s)-$$"

redis-cli -e --no-auth-warning -u "$url" RPUSH inferq:digits "{
  \"id\": \"$id\",
  \"inputs\": [{\"name\": \"pixels\", \"datatype\": \"FP32\", \"shape\": [1, 64], \"data\": $pixels}]
}" >/dev/null

# Reading a reply does not consume it. Before it is written GET prints an empty line.
tries=100
while [ "$tries" -gt 0 ]; do
    reply=$(redis-cli -e --no-auth-warning -u "$url" GET "{inferq:digits}:reply:$id")
    if [ -n "$reply" ]; then
        printf '%s\n' "$reply"
        case $reply in *'"error"'*) exit 1 ;; *) exit 0 ;; esac
    fi
    tries=$((tries - 1))
    sleep 0.1
done
echo "no reply to $id after 10 s: does a worker run?" >&2
exit 75
