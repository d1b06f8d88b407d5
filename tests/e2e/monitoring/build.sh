#!/bin/sh
# Build Prometheus from its Go module, once for this version, without its service discoveries and its page.
# It lands in ${XDG_CACHE_HOME:-~/.cache}/gangline/prometheus/VERSION; the last line printed is that folder.
# Measured on two cores: about six minutes the first time.
set -eu
version=v0.316.0 # Prometheus 3.16.0
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/prometheus/$version
if [ ! -x "$target/prometheus" ]; then
  command -v go >/dev/null || { echo "prometheus is not in $target, and building it needs Go" >&2; exit 1; }
  echo "building prometheus $version" >&2
  new=$target/new.$$ # moved when whole: another build may run at the same time
  mkdir -p "$new"
  CGO_ENABLED=0 GOFLAGS= GOBIN=$new go install -trimpath -tags remove_all_sd -ldflags "-s -w" \
    "github.com/prometheus/prometheus/cmd/prometheus@$version"
  mv "$new/prometheus" "$target/prometheus"
  rm -rf "$new"
fi
echo "$target"
