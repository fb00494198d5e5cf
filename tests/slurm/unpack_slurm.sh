#!/usr/bin/env bash
# Unpack the Slurm packages of another Debian release into .cache/slurm-RELEASE, for the test cluster: ten seconds.
#
#   tests/slurm/unpack_slurm.sh sid
#   JOBSPEC_SLURM=sid .venv/bin/python -m pytest -n 0 tests/slurm
#
# Nothing is installed: the nodes of a cluster see the folder laid over their /usr, the C library of that release and
# what else Slurm is linked with included. Newer libraries run older programs, so all else stays this machine's.
set -euo pipefail

release=${1:?which release: trixie, sid}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
prefix=$root/.cache/slurm-$release
mkdir -p "$root/.cache"
work=$(mktemp -d "$root/.cache/unpack.XXXXXX") # not in /tmp: apt's user could not enter it there
trap 'rm -rf "$work"' EXIT

# The archive that this machine's own packages come from, and an apt with no package installed.
# shellcheck disable=SC2016 # apt fills the words in
archive=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
  sed -n 's/^Debian Debian //p' | head -n 1)
[[ -n $archive ]] || { echo "apt lists no archive of Debian here: run apt-get update, on a Debian" >&2; exit 1; }
mkdir -p "$work"/{lists,cache/archives}/partial
touch "$work/status"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $archive $release main" >"$work/sources.list"
cat >"$work/apt.conf" <<CONF
Dir::State "$work";
Dir::State::Lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$work/apt.conf
{
  apt-get update -q
  apt-get install -qq -y --download-only --no-install-recommends \
    slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin
} >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

for package in "$work"/cache/archives/{slurm,lib}*.deb; do
  dpkg-deb -x "$package" "$work/tree"
done
rm -rf "$prefix" "$work"/tree/usr/share/{doc,man,locale}
mv "$work/tree/usr" "$prefix"
echo "$(basename "$work"/cache/archives/slurmctld_*.deb .deb) is in $prefix"
