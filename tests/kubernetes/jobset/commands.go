//go:build commands

// Package commands names the command that tests build, so that go.mod keeps what it needs.
package commands

import (
	_ "sigs.k8s.io/jobset"
)
