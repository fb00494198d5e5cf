#!/usr/bin/env bash
# PID 1 of one test node, started inside fresh net, uts, ipc, mount and pid namespaces.
#
#   node-init.sh LAB NODE ADDRESS
#
# Gives the node its own name, /tmp, /run, /dev/shm, sysfs and cgroup folders, keeps the shared folder and
# the checkout visible at their usual paths, then starts the node's daemons. It prints `ready` when the
# mounts are done and goes on when the caller has set up the network and closes its end of stdin.
# Everything here vanishes with the process: the mounts are private to the namespace.
set -euo pipefail

lab=$1 node=$2 address=$3

hostname "$node"

# Folders that must survive the masking below are held open: a bind mount from /proc/self/fd works when the
# path itself is already hidden (`mount -c` keeps mount(8) from resolving it).
declare -A held=()
hold() { local fd; exec {fd}<"$1"; held[$1]=$fd; }
graft() { # PATH [ro]
  mkdir -p "$1"
  mount -c --bind "/proc/self/fd/${held[$1]}" "$1"
  if [[ ${2:-} == ro ]]; then mount -o remount,bind,ro "$1"; fi
}

mapfile -t read_only <"$lab/etc/read_only"
mapfile -t hidden <"$lab/etc/hidden"
mapfile -t cgroups <"$lab/etc/cgroups" # lines "controller host-folder"
hold "$lab"
for path in "${read_only[@]}"; do hold "$path"; done
for line in "${cgroups[@]}"; do mkdir -p "${line#* }/$node"; hold "${line#* }/$node"; done

mount --bind "$lab/etc/slurm" /etc/slurm
for file in hosts passwd group resolv.conf; do mount --bind "$lab/etc/$file" "/etc/$file"; done

for path in "${hidden[@]}"; do mount -t tmpfs -o mode=0755 tmpfs "$path"; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=1777,size=4g tmpfs /dev/shm
graft "$lab"
for path in "${read_only[@]}"; do graft "$path" ro; done

# A new network namespace needs a new sysfs, which hides the cgroup mounts. Each node sees a folder of its
# own as the root of every controller, so that four slurmd, or two clusters, never share a cgroup.
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
for line in "${cgroups[@]}"; do
  mkdir "/sys/fs/cgroup/${line%% *}"
  mount -c --bind "/proc/self/fd/${held[${line#* }/$node]}" "/sys/fs/cgroup/${line%% *}"
done
for fd in "${held[@]}"; do exec {fd}<&-; done

# Another release's Slurm, with the libraries that it needs.
usr=$(<"$lab/etc/slurm_usr")
[[ -z $usr ]] || mount -t overlay -o "lowerdir=$usr:/usr" overlay /usr

# Pyxis and Enroot, or what stands in for them, lie among the system's programs, as their packages put them.
programs=$(<"$lab/etc/programs")
mkdir /run/slurm
touch /run/slurm/srun
mount --bind /usr/bin/srun /run/slurm/srun # hidden by the one that stands in
mount -t overlay -o "lowerdir=$programs:/usr/bin" overlay /usr/bin || echo "no overlay here: no Pyxis" >&2
ip link set lo up
echo ready
read -r _ || true # the caller connects eth0, or the bridge, now
exec </dev/null >&2

await_port() { # NAME PORT: daemons that open no port within 30 s end the node with a reason
  local deadline=$((SECONDS + 30))
  until (exec 4<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null; do
    if ((SECONDS > deadline)); then
      echo "$1 did not open port $2 within 30 s" >&2
      exit 1
    fi
    sleep 0.05
  done
}

start_accounting() {
  mariadbd --no-defaults --user=root --datadir="$lab/mysql" --socket="$lab/mysql/socket" \
    --pid-file="$lab/mysql/pid" --bind-address=127.0.0.1 --init-file="$lab/etc/mysql-init.sql" \
    --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=0 --skip-log-bin >"$lab/log/mariadbd.log" 2>&1 &
  await_port mariadbd 3306
  slurmdbd -D >"$lab/log/slurmdbd.out" 2>&1 &
  await_port slurmdbd 6819
  sacctmgr -i add cluster lab >"$lab/log/sacctmgr.log" 2>&1
  sacctmgr -i add account lab >>"$lab/log/sacctmgr.log" 2>&1
  for user in root alice; do sacctmgr -i add user "$user" account=lab >>"$lab/log/sacctmgr.log" 2>&1; done
}

if [[ $node == ctl ]]; then
  ip addr add "$address/24" dev br0
  munged --foreground --key-file="$lab/munge/key" --socket="$lab/munge/socket" --pid-file="$lab/munge/pid" \
    --seed-file="$lab/munge/seed" --log-file="$lab/log/munged.log" >"$lab/log/munged.out" 2>&1 &
  until [[ -S $lab/munge/socket ]]; do sleep 0.02; done
  if grep -q slurmdbd "$lab/etc/slurm/slurm.conf"; then start_accounting; fi
  slurmctld -D -c >"$lab/log/slurmctld.out" 2>&1 &
else
  until [[ -S $lab/munge/socket ]]; do sleep 0.02; done
  slurmd -D >"$lab/log/slurmd-$node.out" 2>&1 &
fi

# As PID 1 this shell reaps orphans; `wait` returns only when a signal arrives.
while :; do
  sleep infinity &
  wait $! || true
done
