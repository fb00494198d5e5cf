#!/usr/bin/env bash
# Build Pyxis and Enroot from their sources into .cache/pyxis, where the test cluster finds them: ten seconds.
#
#   tests/slurm/build_pyxis.sh                   clones both from GitHub
#   tests/slurm/build_pyxis.sh PYXIS ENROOT      two checkouts, or bare repositories
#
# Needs gcc, make, git and the Debian packages libslurm-dev, musl-tools and linux-libc-dev. Enroot's submodules
# (musl, kernel headers, makeself) are not fetched: musl-tools and linux-libc-dev have what its programs need.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prefix=$root/.cache/pyxis
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sources() { # NAME TAG [REPOSITORY]
  local repository=${3:-$work/$1.git}
  [[ -n ${3:-} ]] || git clone -q --bare --depth 1 --branch "$2" "https://github.com/NVIDIA/$1" "$repository"
  mkdir "$work/$1"
  git -C "$repository" archive HEAD | tar -x -C "$work/$1"
}
sources pyxis v0.24.0 "${1:-}"
sources enroot v4.1.2 "${2:-}"

rm -rf "$prefix"
deps=$work/enroot/deps
mkdir -p "$deps"/{musl,makeself,linux-headers} "$deps"/dist/{musl,makeself}/bin "$deps/dist/linux/include/sys"
touch "$deps"/{musl,makeself,linux-headers}/.stamp "$deps/dist/linux/include/sys/cdefs.h"
ln -s /usr/include/{linux,asm-generic} "/usr/include/$(gcc -print-multiarch)/asm" "$deps/dist/linux/include"
printf '#!/bin/sh\nexit 1\n' >"$deps/dist/makeself/bin/enroot-makeself" # only `enroot bundle` needs it
# Debian's musl-gcc knows no -static-pie.
cat >"$deps/dist/musl/bin/musl-gcc" <<'WRAPPER'
#!/bin/bash
words=()
for word; do
  case $word in -pie) ;; -static-pie) words+=(-static) ;; *) words+=("$word") ;; esac
done
exec /usr/bin/musl-gcc "${words[@]}" -idirafter "${0%/musl/bin/*}/linux/include"
WRAPPER
chmod +x "$deps"/dist/*/bin/*
# Without GIT_DIR its Makefile would look for submodules in the repository around it.
GIT_DIR=/nonexistent make -C "$work/enroot" prefix="$prefix" install >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

# As on a site whose homes are shared: what Enroot unpacks belongs on the node.
cat >"$prefix/etc/enroot/enroot.conf.d/site.conf" <<'CONF'
ENROOT_DATA_PATH /tmp/enroot-$(id -u)/data
ENROOT_CACHE_PATH /tmp/enroot-$(id -u)/cache
ENROOT_RUNTIME_PATH /tmp/enroot-$(id -u)/run
ENROOT_ROOTFS_WRITABLE yes
CONF
# It looks for the task's cgroup by the machine's path, which a node of the test cluster sees under another one.
rm "$prefix/etc/enroot/hooks.d/10-cgroups.sh"
# The plugin comes last: where it is, the rest is.
make -C "$work/pyxis" prefix="$prefix" install >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
echo "built in $prefix"
