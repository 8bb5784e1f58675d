// Package sysfs reads the kernel's information about the location of devices.
//
// # Lock order
//
// No locks.
package sysfs
