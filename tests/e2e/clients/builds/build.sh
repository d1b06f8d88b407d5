#!/bin/sh
# Build clients and operators from Go modules, and fetch the install files of the MPI operator, once for these versions.
# They land in ${XDG_CACHE_HOME:-~/.cache}/gangline/clients/KEY; the last line printed is that folder.
# Measured on two cores that did other work as well: six minutes the first time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
key=$(cat "$here/build.sh" "$here"/*/go.mod | sha256sum | cut -c1-12)
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/clients/$key
mkdir -p "$target"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly
for program in helm kustomize training-operator.v1 kube-state-metrics; do
  [ -x "$target/$program" ] && continue
  command -v go >/dev/null || { echo "$program is not in $target, and building it needs Go" >&2; exit 1; }
  echo "building $program" >&2
  new=$target/new.$$ # moved when whole: another build may run at the same time
  rm -rf "$new"
  case $program in
    helm) module=helm.sh/helm/v3/cmd/helm@v3.22.0 ;;
    kustomize) module=sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 ;;
    training-operator.v1) module=github.com/kubeflow/training-operator/cmd/training-operator.v1@v1.8.1 ;;
    kube-state-metrics) module= ;; # the list of its versions is not served everywhere, and `go install` asks for it
  esac
  if [ -n "$module" ]; then
    GOFLAGS= GOBIN=$new go install -trimpath -ldflags "-s -w" "$module"
    new=$new/$program
  else
    (cd "$here/$program" && go build -trimpath -ldflags "-s -w" -o "$new" k8s.io/kube-state-metrics/v2)
  fi
  mv "$new" "$target/$program"
  rm -rf "$target/new.$$"
done
for module in mpi-operator@v0.6.0 training-operator@v1.8.1; do
  [ -d "$target/${module%@*}" ] && continue
  command -v go >/dev/null || { echo "the files of $module are fetched with Go" >&2; exit 1; }
  folder=$(cd "$here/kube-state-metrics" && go mod download -json "github.com/kubeflow/$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  mkdir -p "$target/new.$$"
  cp -r "$folder/manifests" "$target/new.$$/"
  [ -d "$folder/deploy" ] && cp -r "$folder/deploy" "$target/new.$$/"
  chmod -R u+w "$target/new.$$"
  mv "$target/new.$$" "$target/${module%@*}"
done
echo "$target"
