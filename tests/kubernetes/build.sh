#!/bin/sh
# Build kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and etcd from Go modules, once for a version.
# They land in ${XDG_CACHE_HOME:-~/.cache}/gangline/kubernetes/VERSION; the last line printed is that folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=v1.35.4
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/kubernetes/$version
mkdir -p "$target"
flags="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35"
for command in kube-apiserver kube-controller-manager kube-scheduler kubelet; do
  [ -x "$target/$command" ] && continue
  echo "building $command $version" >&2
  (cd "$here/control-plane" && CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$target/$command.new" "k8s.io/kubernetes/cmd/$command")
  mv "$target/$command.new" "$target/$command"
done
if [ ! -x "$target/etcd" ]; then
  echo "building etcd" >&2
  (cd "$here/etcd" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$target/etcd.new" go.etcd.io/etcd/server/v3)
  mv "$target/etcd.new" "$target/etcd"
fi
echo "$target"
