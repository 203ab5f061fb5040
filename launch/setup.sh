#!/usr/bin/env bash
# Installs the Debian packages that tfm builds and runs with; with --tests also those of its tests. Needs root (or sudo).
set -euo pipefail
packages=(
  g++ cmake ninja-build pkg-config git
  libopenmpi-dev openmpi-bin
  libyaml-cpp-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev
  zlib1g-dev libzstd-dev
  libdnnl-dev prometheus-cpp-dev libcpp-httplib-dev
)
if [ "${1:-}" = --tests ]; then
  packages+=(libgtest-dev ccache curl procps python3 clang-format-14)
fi
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root apt-get update -qq
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
