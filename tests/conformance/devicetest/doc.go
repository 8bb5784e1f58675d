// Package devicetest is the conformance suite of [devices.Device]: all that
// the interface and its optional abilities promise, checked on any device.
//
// A family runs it on small devices (64 MiB is plenty) in its own tests:
//
//	devicetest.Run(t, func(t *testing.T) devices.Device { … })
//
// The suite opens a device for each check, some checks open two at a time,
// and it closes what it has opened. Content is made by [Pattern], whose bytes
// depend on their position, so that a shifted or stale byte is seen.
package devicetest
