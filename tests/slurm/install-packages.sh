#!/usr/bin/env bash
# Install the Debian packages that the tests use: a Slurm cluster, container runtimes, shellcheck, a compiler.
# Does nothing where they are installed; elsewhere than root on Debian it only says what will be skipped.
set -euo pipefail

packages=(
  slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins munge mariadb-server # the cluster
  iproute2 procps util-linux                                                          # its namespaces
  charliecloud bubblewrap crun debootstrap                                            # containers
  git shellcheck g++ make python3-dev openssh-client openssh-server                   # the rest of the tests
)
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "not root on Debian: tests that need these packages are skipped: ${packages[*]}"
  exit 0
fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

# The packages would start slurmd and mariadbd as services of this machine; nobody asked for that.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends "${missing[@]}"
