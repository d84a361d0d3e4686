#!/usr/bin/env bash
# Runs COMMAND as rank 0 in one network namespace and as rank 1 in another, joined by one pair of
# virtual interfaces, as torchrun would on two hosts: for `unshare --map-root-user --net`. When the
# file CUT appears, the cable between them is pulled. The exit code is the larger one.
#
#   two_hosts.sh CUT COMMAND...
set -euo pipefail
cut=$1
shift

unshare --net sleep infinity &
peer=$!
pulling=
trap 'kill $peer $pulling 2>/dev/null || true' EXIT
while [ "$(readlink /proc/$peer/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
there() { nsenter --target $peer --net "$@"; }

ip link add host0 type veth peer name host1
ip link set host1 netns $peer
ip link set lo up
ip address add 10.77.0.1/24 dev host0
ip link set host0 up
there ip link set lo up
there ip address add 10.77.0.2/24 dev host1
there ip link set host1 up

run_rank() {
  env RANK="$1" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GLOO_SOCKET_IFNAME="host$1" \
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=0 "${@:2}"
}
run_rank 0 "$@" &
first=$!
run_rank 1 nsenter --target $peer --net "$@" &
second=$!
{ while [ ! -e "$cut" ]; do sleep 0.05; done; ip link set host0 down; } &
pulling=$!

code=0
for rank in $first $second; do
  wait "$rank" || { ended=$?; [ $ended -le $code ] || code=$ended; }
done
exit $code
