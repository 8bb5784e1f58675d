// Package lab is the cluster that tests/chaos and tests/attack attack: nodes with real
// mounts, each in a network namespace of its own, joined by a relay, and
// where they meet by etcd three members of it in namespaces of their own.
//
// It is used in a process that has mount and process namespaces of its own:
// what its Close leaves behind ends with that process.
//
// # Lock order
//
// Each Node has one lock, under which nothing waits but for the start and end
// of its daemon.
package lab
