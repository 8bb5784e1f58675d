// Package top shows what a mount is doing, as rates between two samples of what its admin socket
// reports. [Run] is the full-screen view, [Once] takes a [Report] for scripts, whose text is
// [Report.Print].
//
// The full-screen view is drawn by Bubble Tea. A model belongs to its loop, and samples are taken
// in its commands, one at a time; so the view stays usable while the daemon does not answer.
//
// # Lock order
//
// No locks.
package top
