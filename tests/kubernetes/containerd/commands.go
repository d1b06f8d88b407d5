//go:build commands

// Package commands names the container runtime that tests build: one that knows CDI, as Debian's does not.
package commands

import _ "github.com/containerd/containerd/cmd/containerd"
