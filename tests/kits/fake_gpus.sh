#!/usr/bin/env bash
# fake_gpus.sh COUNT COMMAND...: run COMMAND where /dev also has COUNT device files named like NVIDIA's GPUs.
# They are clones of /dev/null, can only be counted, and exist in this mount namespace alone:
#     unshare -m --propagation private bash fake_gpus.sh 2 jobspec run SPEC
# Without a COMMAND they stay until `umount -l /dev` there.
set -eu
count=$1
shift
work=$(mktemp -d)
mount -t tmpfs fake-gpus "$work"
mkdir "$work/old" "$work/up" "$work/work"
mount --rbind /dev "$work/old"
mount -t overlay fake-gpus -o "lowerdir=/dev,upperdir=$work/up,workdir=$work/work" /dev
for name in shm pts mqueue; do
  [ ! -d "$work/old/$name" ] || { mkdir -p "/dev/$name"; mount --rbind "$work/old/$name" "/dev/$name"; }
done
for ((index = 0; index < count; index++)); do
  mknod -m 666 "/dev/nvidia$index" c 1 3
done
[ $# -eq 0 ] || exec "$@"
