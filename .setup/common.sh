# shellcheck shell=bash
# Shared by the scripts beside it; sourced, never run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${SHARDLENS_DEPS:-$root/.deps}
case $deps in /*) ;; *) deps=$PWD/$deps ;; esac
log=$deps/install.log

say() { echo "shardlens: $*"; }

fail() {
  echo "shardlens: $*" >&2
  exit 1
}

# Runs a command with its output in the log; shows the end of the log if it fails.
quietly() {
  echo "\$ $*" >>"$log"
  "$@" >>"$log" 2>&1 && return
  tail -n 15 "$log" >&2
  return 1
}

pins=$root/.setup/pins  # its README.md says which file is for what

# Prints the versions of PyTorch for which there are pins of this use, the oldest first: versions_of USE.
versions_of() {
  local file
  for file in "$pins/$1"-*.txt; do
    file=${file##*/"$1"-}
    echo "${file%.txt}"
  done | sort --version-sort
}

# Everything is built with this PyTorch: TORCH, or the base.
torch_version=${TORCH:-$(<"$pins/base")}
torch=$deps/libtorch-$torch_version

# Prints the requirement file of one use: pins_file USE [TORCH].
pins_file() {
  local file=$pins/$1-${2:-$torch_version}.txt
  [ -e "$file" ] || file=$pins/$1.txt
  echo "$file"
}

# Prints the wheels of one use, those that all versions share first: pins_of USE [TORCH].
pins_of() {
  local file
  for file in "$pins/$1.txt" "$pins/$1-${2:-$torch_version}.txt"; do
    [ ! -e "$file" ] || grep -v '^-r ' "$file"
  done
}

# A folder is complete if it holds the hash of the pins that it was made from:
# is_complete FOLDER USE [TORCH].
hash_of_pins() { pins_of "$@" | sha256sum | cut -d ' ' -f 1; }
is_complete() { [ "$(cat "$1/.pins" 2>/dev/null)" = "$(hash_of_pins "${@:2}")" ]; }

# Makes .deps/NAME point to what was made for this PyTorch; build/ also serves one at a time.
point_to() {
  local name=$1 made=$2
  [ "$(readlink "$deps/$name" || true)" != "$made" ] || return 0
  rm -rf "${deps:?}/$name"
  ln -s "$made" "$deps/$name"
}

# Allows one installation at a time; the second waits and then finds everything installed.
take_lock() {
  mkdir -p "$deps"
  exec 9>"$deps/.lock"
  if ! flock --nonblock 9; then
    say "waiting for another installation into $deps"
    flock 9
  fi
}

need_free_gb() {
  local free_gb
  free_gb=$(df -Pk "$deps" | awk 'NR == 2 { print int($4 / 1024 / 1024) }')
  [ "$free_gb" -ge "$1" ] ||
    fail "$2 needs $1 GB in $deps, where $free_gb GB are free;" \
      "make room or set SHARDLENS_DEPS to another folder"
}

# Sets a compiler's environment. Clones in different folders share ccache's cache, and so do
# recorders, which are mostly the same for every PyTorch.
prepare_compiler() {
  unset CUDA_HOME CUDA_PATH LIBRARY_PATH  # nothing is taken from an installed CUDA toolkit
  export CCACHE_SLOPPINESS=pch_defines,time_macros  # else ccache misses precompiled headers
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
}

# Runs pip, with a progress bar for people and silently in logs.
pip_install() {
  local python=$1
  shift
  local options=(--disable-pip-version-check --no-input --root-user-action=ignore)
  # pip unpacks in TMPDIR first: beside the target, since a RAM disk may be too small.
  mkdir -p "$deps/tmp"
  if [ -t 1 ]; then
    TMPDIR=$deps/tmp "$python" -m pip install "${options[@]}" "$@"
  else
    TMPDIR=$deps/tmp quietly "$python" -m pip install --progress-bar off "${options[@]}" "$@"
  fi
}
