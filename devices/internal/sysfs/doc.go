// Package sysfs reads what the kernel tells of the places of devices.
//
// # Lock order
//
// No locks.
package sysfs
