//go:build commands

// Package commands names the store that tests build.
package commands

import _ "go.etcd.io/etcd/server/v3"
