#!/usr/bin/env bash
# Builds tfm for Arm (aarch64) on an x86-64 machine with Debian 12 and runs it under QEMU, first with a processor without SVE, then
# with one that has it: ops, kernels, and steps of a run in three precisions. Needs root, the network, and an hour.
# usage: arm.sh FOLDER                 # keeps Debian's packages for Arm, the build and the runs in FOLDER
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1" && cd "$1"
folder=$PWD root=$PWD/root
apt-get install -y -qq --no-install-recommends g++-12-aarch64-linux-gnu qemu-user-static

# Debian's packages for Arm, unpacked: nothing of them runs, so that they need no second stage.
if [ ! -d "$root" ]; then
  mkdir -p apt/etc/apt.conf.d apt/etc/preferences.d apt/state/lists/partial apt/cache/archives/partial root.new/usr/{bin,sbin,lib}
  : > apt/status
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" > apt/etc/sources.list
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false -o APT::Sandbox::User=root
    -o Dir::Etc="$folder/apt/etc" -o Dir::State="$folder/apt/state" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache")
  apt-get "${options[@]}" update -qq
  apt-get "${options[@]}" install -y -qq --download-only libc6-dev libstdc++-12-dev libgomp1 libopenmpi-dev libyaml-cpp-dev \
    nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev zlib1g-dev libzstd-dev libdnnl-dev libhwloc-dev prometheus-cpp-dev \
    libcpp-httplib-dev libgtest-dev
  for name in bin sbin lib; do ln -s usr/$name root.new/$name; done
  for package in apt/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -xf - -C root.new --keep-directory-symlink
  done
  mv root.new root
fi

cat > toolchain.cmake <<END
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-L;$root")
set(ENV{PKG_CONFIG_LIBDIR} $root/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} $root)
set(MPI_SKIP_COMPILER_WRAPPER ON)  # this machine's
set(MPI_CXX_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY $root/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so)
set(MPI_CXX_HEADER_DIR $root/usr/lib/aarch64-linux-gnu/openmpi/include)
END
cmake -G Ninja -S "$source" -B build -DCMAKE_TOOLCHAIN_FILE="$folder/toolchain.cmake" -DCMAKE_BUILD_TYPE=Release -DTFM_CUDA=OFF -DTFM_TESTS=ON
cmake --build build --target tfm-train tfm-plan tfm-verify test-ops test-unit

rm -rf runs
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for cpu in cortex-a57 max; do
  run() { local program=$1; shift; qemu-aarch64-static -L "$root" -cpu $cpu "$folder/build/bin/$program" "$@"; }
  run test-ops --gtest_brief=1
  # The one left out compares with /proc/cpuinfo, which is of this machine.
  run test-unit --gtest_brief=1 --gtest_filter='Act*:Norm*:Drop*:Loss/*:Gemm*:Half*:Table*:Update*:PartUpdate*:Attention/*:DotProduct*:BucketBias*:RandomStream*:MasterWeights*:-HalfGemm.UsesWhatTheProcessorHas'
  for precision in fp32 bf16 fp16; do
    (cd "$source" && run tfm-train configs/tiny_decoder.yaml data.train.path=README.md train.global_batch_size=2 train.steps=4 eval.every=0 \
      precision=$precision metrics.jsonl="$folder/$cpu-$precision.jsonl" checkpoint.dir="$folder/runs/$cpu-$precision")
  done
done
