#!/usr/bin/env bash
# Tests the wheel in a new Debian 12 that has python3-venv and nothing else, as root:
#
#     tests/wheel/debian.sh dist/*.whl [FOLDER]
#
# makes that Debian with debootstrap (from DEBIAN_MIRROR, if that is set) in FOLDER, or else in a
# temporary folder, which is removed; installs PyTorch and transformers there from pip, unless an
# earlier run has, then the wheel, and prints how long each step takes. It fails if they take more
# than a minute without the downloads, if there is a compiler, and if anything is written outside
# the environment and the run's folder. An Ubuntu, with its keyring from ubuntu-keyring:
#
#     DEBIAN_SUITE=noble DEBIAN_MIRROR=http://HOST/ubuntu tests/wheel/debian.sh ...
set -euo pipefail

wheel=$(realpath "$1")
made=${2:-$(mktemp -d)}
is_temporary=$([ $# -ge 2 ] && echo no || echo yes)
here=$(cd "$(dirname "$0")" && pwd)

fail() {
  echo "debian.sh: $*" >&2
  exit 1
}

inside() {
  chroot "$made" /usr/bin/env -i HOME=/home/user PATH=/home/user/venv/bin:/usr/bin:/bin \
    LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} PIP_DEFAULT_TIMEOUT=180 \
    sh -c "cd /home/user && $1"
}

clean_up() {
  umount "$made/proc" "$made/dev/shm" 2>/dev/null || true
  [ $is_temporary = no ] || rm -rf --one-file-system "$made"
}

# timed WORDS COMMAND: words with "counts" add to the total.
timed() {
  local begun=$EPOCHREALTIME status=0
  inside "$2" >"$made/said" 2>&1 || status=$?
  local took
  took=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  tail -n 3 "$made/said"
  printf '%6s s  %s\n\n' "$took" "$1"
  [ "$status" = 0 ] || fail "$2: exit code $status"
  case $1 in *counts*) total=$(awk -v a="$total" -v b="$took" 'BEGIN { print a + b }') ;; esac
}

[ "$(id -u)" = 0 ] || fail "only root can make a Debian; run it as root"
command -v debootstrap >/dev/null || fail "debootstrap is missing; install it"

# Makes DEBIAN_SUITE of DEBIAN_MIRROR. One script of debootstrap, gutsy, serves every Ubuntu; older
# versions of debootstrap lack a link to it for newer suites.
make_debian() {
  local suite=${DEBIAN_SUITE:-bookworm} shares=/usr/share
  local arguments=(--variant=minbase --include=python3-venv,ca-certificates)
  if [[ ${DEBIAN_MIRROR:-} == *ubuntu* ]]; then
    local keyring=$shares/keyrings/ubuntu-archive-keyring.gpg
    debootstrap "${arguments[@]}" --components=main,universe --keyring="$keyring" \
      "$suite" "$made" "$DEBIAN_MIRROR" $shares/debootstrap/scripts/gutsy
  else
    debootstrap "${arguments[@]}" "$suite" "$made" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
  fi
}

if [ ! -x "$made/usr/bin/python3" ]; then
  make_debian >"$made.log" 2>&1 || fail "debootstrap failed (see $made.log)"
fi
cp /etc/resolv.conf "$made/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$made/etc/ssl/certs/"
mkdir -p "$made/dev/shm"
trap clean_up EXIT
mount -t proc none "$made/proc"
mount -t tmpfs none "$made/dev/shm"
mkdir -p "$made/home/user"
cp "$wheel" "$made/home/user/"
cp "$here/small_llama.py" "$made/home/user/train.py"
for name in cc c++ gcc g++ cmake ninja make; do
  [ ! -e "$made/usr/bin/$name" ] || fail "there is $name in that Debian, which is not as it was made"
done

total=0
if inside "pip show --quiet torch transformers" 2>/dev/null; then  # from an earlier run
  inside "rm -rf runs && pip uninstall --quiet --yes shardlens"
else
  timed "python3 -m venv" "rm -rf venv runs && python3 -m venv venv"
  timed "pip install torch transformers (a download)" "pip install torch transformers"
fi
touch "$made/home/before"
timed "pip install of the wheel; counts" "pip install --no-index shardlens-*.whl"
timed "plan; counts" "shardlens plan --model llama-8b --gpu h100 --world 8 --param-dtype bf16 --batch 1"
timed "record of a script of transformers; counts" \
  "shardlens record --device null:h100 --world 8 --rank 3 --out runs/llama -- python train.py"
timed "view --export; counts" "shardlens view --no-cache runs/llama --export runs/llama.html"
# The viewer cannot draw there, and says so in a line.
for act in "--screenshot runs/llama.png" ""; do
  why=$(inside "shardlens view --no-cache runs/llama $act" 2>&1) && fail "view $act: it has drawn"
  [[ $why == "shardlens view: "* && $why != *$'\n'* ]] || fail "view $act: $why"
  echo "$why"
done
echo "$total s, without the downloads; the limit is 60 s"

written=$(cd "$made" && find . -xdev -newer home/before -type f ! -path './home/user/venv/*' \
  ! -path './home/user/runs/*' ! -path ./said ! -path './proc/*' ! -path './dev/*')
[ -z "$written" ] || fail "written outside the environment and the run: $written"
awk -v total="$total" 'BEGIN { exit total > 60 }' || fail "that is more"
