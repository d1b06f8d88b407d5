#!/bin/sh
# Build oauth2-proxy from its Go module, once for this version.
# It lands in ${XDG_CACHE_HOME:-~/.cache}/gangline/oauth2-proxy/VERSION; the last line printed is that folder.
set -eu
version=v7.15.6
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/oauth2-proxy/$version
if [ ! -x "$target/oauth2-proxy" ]; then
  command -v go >/dev/null || { echo "oauth2-proxy is not in $target, and building it needs Go" >&2; exit 1; }
  echo "building oauth2-proxy $version" >&2
  new=$target/new.$$ # moved when whole: another build may run at the same time
  mkdir -p "$new"
  CGO_ENABLED=0 GOFLAGS= GOBIN=$new go install -trimpath -ldflags "-s -w" "github.com/oauth2-proxy/oauth2-proxy/v7@$version"
  mv "$new/oauth2-proxy" "$target/oauth2-proxy"
  rm -rf "$new"
fi
echo "$target"
