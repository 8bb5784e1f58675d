// Package sysfs reads the kernel's information about the location of devices and about the
// machine's memory.
//
// # Lock order
//
// No locks.
package sysfs
