#!/bin/sh
# Build clients and operators from Go modules, and fetch the install files of operators, once for these versions.
# They land in ${XDG_CACHE_HOME:-~/.cache}/gangline/clients/KEY; the last line printed is that folder.
# Measured on two cores that did other work as well: nine minutes the first time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
key=$(cat "$here/build.sh" "$here"/*/go.mod | sha256sum | cut -c1-12)
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/clients/$key
mkdir -p "$target"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly

# Print the folder of a module's files, fetched if need be.
fetched() {
  (cd "$here/kube-state-metrics" && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
}

for program in helm kustomize mpi-operator training-operator.v1 kube-state-metrics prometheus-operator registry; do
  [ -x "$target/$program" ] && continue
  command -v go >/dev/null || { echo "$program is not in $target, and building it needs Go" >&2; exit 1; }
  echo "building $program" >&2
  new=$target/new.$$ # moved when whole: another build may run at the same time
  rm -rf "$new"
  case $program in
    helm) module=helm.sh/helm/v3/cmd/helm@v3.22.0 ;;
    kustomize) module=sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 ;;
    training-operator.v1) module=github.com/kubeflow/training-operator/cmd/training-operator.v1@v1.8.1 ;;
    registry) module=github.com/distribution/distribution/v3/cmd/registry@v3.0.0 ;;
    mpi-operator) # as below
      cp -r "$(fetched github.com/kubeflow/mpi-operator@v0.8.2)" "$new"
      chmod -R u+w "$new"
      (cd "$new" && go build -trimpath -ldflags "-s -w" -o "$program" ./cmd/mpi-operator)
      module= ;;
    kube-state-metrics) # the list of its versions is not served everywhere, and `go install` asks for it
      (cd "$here/$program" && go build -trimpath -ldflags "-s -w" -o "$new/$program" k8s.io/kube-state-metrics/v2)
      module= ;;
    prometheus-operator) # `go install` refuses a module that replaces others by its own folders, which are modules too
      module=github.com/prometheus-operator/prometheus-operator
      cp -r "$(fetched $module@v0.85.0)" "$new"
      chmod -R u+w "$new"
      (cd "$new" && go mod edit -dropreplace $module/pkg/apis/monitoring -dropreplace $module/pkg/client &&
        GOFLAGS=-mod=mod go build -trimpath -ldflags "-s -w" -o "$program" ./cmd/operator)
      module= ;;
  esac
  [ -z "$module" ] || GOFLAGS= GOBIN=$new go install -trimpath -ldflags "-s -w" "$module"
  mv "$new/$program" "$target/$program"
  rm -rf "$target/new.$$"
done
for module in kubeflow/mpi-operator@v0.8.2 kubeflow/training-operator@v1.8.1 \
  prometheus-operator/prometheus-operator@v0.85.0; do
  files=$(basename "${module%@*}")-files
  [ -d "$target/$files" ] && continue
  command -v go >/dev/null || { echo "the files of $module are fetched with Go" >&2; exit 1; }
  folder=$(fetched "github.com/$module")
  mkdir -p "$target/new.$$"
  for part in manifests deploy example bundle.yaml kustomization.yaml; do
    [ ! -e "$folder/$part" ] || cp -r "$folder/$part" "$target/new.$$/"
  done
  chmod -R u+w "$target/new.$$"
  mv "$target/new.$$" "$target/$files"
done
echo "$target"
