#!/bin/sh
# Build Kubernetes, etcd, CoreDNS, containerd and a pause program from Go modules, once for a version: all, or those named.
# `build.sh v1.37.1 [COMMAND...]` builds that release, of which there is no node: etcd, API server, controllers, scheduler,
# and the controllers of Kueue and JobSet with their definitions.
# They land in ${XDG_CACHE_HOME:-~/.cache}/gangline/kubernetes/VERSION; the last line printed is that folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
  v1.37.1) version=$1 plane=control-plane-1.37 all="etcd kube-apiserver kube-controller-manager kube-scheduler kueue jobset" && shift ;;
  *) version=v1.35.4 plane=control-plane all="etcd kube-apiserver kube-controller-manager kube-scheduler kubelet coredns containerd pause" ;;
esac
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/kubernetes/$version
[ $# -gt 0 ] || set -- $all
minor=${version#v1.} minor=${minor%%.*}
mkdir -p "$target"
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"
for command in "$@"; do
  [ -x "$target/$command" ] && continue
  command -v go >/dev/null || { echo "$command is not in $target, and building it needs Go" >&2; exit 1; }
  echo "building $command for Kubernetes $version" >&2
  case $command in
    containerd) module=containerd package=github.com/containerd/containerd/cmd/containerd ldflags="-s -w" ;;
    etcd) module=etcd package=go.etcd.io/etcd/server/v3 ldflags="-s -w" ;;
    kueue) module=kueue package=sigs.k8s.io/kueue/cmd/kueue ldflags="-s -w" ;;
    jobset) module=jobset package=sigs.k8s.io/jobset ldflags="-s -w" ;;
    coredns | pause) module=$command package=. ldflags="-s -w" ;;
    *) module=$plane package=k8s.io/kubernetes/cmd/$command ldflags=$flags ;;
  esac
  new=$target/$command.$$ # moved when whole: another build may run at the same time
  (cd "$here/$module" && CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o "$new" "$package")
  if [ "$command" = kueue ] || [ "$command" = jobset ]; then
    source=$(cd "$here/$command" && go list -m -f '{{.Dir}}' "sigs.k8s.io/$command")
    mkdir -p "$target/$command-definitions"
    cp -f "$source"/config/components/crd/bases/*.yaml "$target/$command-definitions"
  fi
  mv "$new" "$target/$command"
done
echo "$target"
