#!/bin/sh
# Build Kubernetes' end-to-end suite and the programs of its images, once for a version (a quarter of an hour on two cores).
# They land in ${XDG_CACHE_HOME:-~/.cache}/gangline/conformance/VERSION; the last line printed is that folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=v1.35.4
target=${XDG_CACHE_HOME:-$HOME/.cache}/gangline/conformance/$version
mkdir -p "$target"
for program in ginkgo e2e.test agnhost nonewprivs; do
  [ -x "$target/$program" ] && continue
  command -v go >/dev/null || { echo "$program is not in $target, and building it needs Go" >&2; exit 1; }
  echo "building $program of Kubernetes $version" >&2
  new=$target/$program.$$ # moved when whole: another build may run at the same time
  case $program in
    e2e.test) (cd "$here/suite" && CGO_ENABLED=0 go test -vet=off -ldflags "-s -w" -c -o "$new" k8s.io/kubernetes/test/e2e) ;;
    ginkgo) (cd "$here/suite" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$new" github.com/onsi/ginkgo/v2/ginkgo) ;;
    *) (cd "$here/suite" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$new" "k8s.io/kubernetes/test/images/$program") ;;
  esac
  mv "$new" "$target/$program"
done
[ -e "$target/localhost.key" ] || # agnhost shows them where it serves TLS
  (cd "$here/suite" && install -m 644 "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.* "$target")
echo "$target"
