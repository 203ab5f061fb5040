#!/usr/bin/env bash
# Installs the packages of Debian 12 or 13 that tfm builds and runs with. Needs root (or sudo).
# usage: setup.sh [--tests] [--packages] [--mpich]: also those of its tests; also those that cpack and launch/package.py need; MPICH for Open MPI
set -euo pipefail
mpi=(libopenmpi-dev openmpi-bin)
packages=(
  g++ cmake ninja-build pkg-config git
  libyaml-cpp-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev
  zlib1g-dev libzstd-dev
  libdnnl-dev libhwloc-dev prometheus-cpp-dev libcpp-httplib-dev
)
for option in "$@"; do
  case $option in
    --tests)
      packages+=(libgtest-dev ccache curl procps python3)
      # The format is that of version 14; where it is not packaged, the test of the format is skipped.
      if grep -q bookworm /etc/os-release; then packages+=(clang-format-14); fi ;;
    --packages) packages+=(dpkg-dev file patchelf python3 python3-pip) ;;
    --mpich) mpi=(libmpich-dev mpich) ;;
    *) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
  esac
done
packages+=("${mpi[@]}")
give_up() { echo "setup.sh: $1; install these packages by other means: ${missing[*]}" >&2; exit 1; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
command -v apt-get > /dev/null || give_up "no apt-get, and this script is for Debian 12 and 13"
[ "$(id -u)" -eq 0 ] || command -v sudo > /dev/null || give_up "not root, and no sudo"
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
