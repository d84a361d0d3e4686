#!/usr/bin/env bash
# Runs COMMAND in a Slurm cluster of two nodes, n0 and n1, on this machine: munged, slurmctld and a
# slurmd for each node, with no service of the system. To be run by hosts.sh.
#
#   slurm.sh FOLDER COMMAND...        (FOLDER: configuration, state and logs)
set -euo pipefail
folder=$1
shift
export SLURM_CONF=$folder/slurm.conf

chmod 755 "$folder"
mkdir -p "$folder/munge" "$folder/controller"
(umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
  --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed"

# A requeued job waits as long as its credentials live: 2 minutes unless cred_expire says less. Two
# slurmds on a machine need ports of their own. The higher tier preempts the lower one.
cat >"$SLURM_CONF" <<CONF
ClusterName=tests
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPidFile=$folder/controller/pid
SlurmctldLogFile=$folder/controller/log
StateSaveLocation=$folder/controller
SlurmdPidFile=$folder/%n.pid
SlurmdLogFile=$folder/%n.log
SlurmdSpoolDir=$folder/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n0 NodeHostname=n0 NodeAddr=n0 Port=7000 CPUs=4
NodeName=n1 NodeHostname=n1 NodeAddr=n1 Port=7001 CPUs=4
PartitionName=all Nodes=n[0-1] Default=YES PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=n[0-1] PriorityTier=2
CONF

slurmctld
for node in n0 n1; do
  mkdir -p "$folder/$node"
  "$(dirname "$0")/hosts.sh" on $node slurmd -N $node
done
for ((look = 0; look < 200; ++look)); do
  [ "$(sinfo --noheader --states idle --format %D 2>/dev/null)" != 2 ] || exec "$@"
  sleep 0.1
done
echo "slurm.sh: the nodes did not come up; see $folder" >&2
exit 1
