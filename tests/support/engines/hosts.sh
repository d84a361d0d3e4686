#!/usr/bin/env bash
# Runs COMMAND on a machine of its own: a loopback with the hosts head, n0, n1 ..., in namespaces
# for mounts, network, names of hosts and processes. No port is shared with the machine around it,
# and no process that COMMAND starts outlives it.
#
#   hosts.sh FOLDER COMMAND...        (as root; FOLDER: for /etc/hosts)
#   hosts.sh on HOST COMMAND...       (inside: runs COMMAND as that host)
set -euo pipefail
hosts=4

if [ "$1" = on ]; then
  exec unshare --uts bash -c "hostname $2"' && shift 2 && exec "$@"' "$0" "$@"
fi
folder=$1
shift
if [ "${IN_NAMESPACES:-}" != yes ]; then
  export IN_NAMESPACES=yes
  exec unshare --mount --net --uts --pid --fork --kill-child --mount-proc "$0" "$folder" "$@"
fi

# A machine that has addresses of 127.0.0.0/8 alone resolves no name (AI_ADDRCONFIG).
ip link set lo up
ip address add 10.77.0.1/24 dev lo
printf '127.0.0.1 localhost\n10.77.0.1 head\n' >"$folder/hosts"
for ((host = 0; host < hosts; ++host)); do
  ip address add "10.77.0.1$host/24" dev lo
  echo "10.77.0.1$host n$host" >>"$folder/hosts"
done
mount --bind "$folder/hosts" /etc/hosts
hostname head
exec "$@"
