// Package sim implements the device family "sim": private memory of this process that
// behaves like a card of configurable size and speed. It replaces hardware in tests,
// demonstrations and measurements.
//
//	sim:0,size=1GiB,bandwidth=20GB/s,latency=5us,mapped=true
//
// # Registered memory
//
// With pinned=true the device registers host memory, as a discrete card does: large copies
// between it and the host tier use the files' own pages. It refuses what a vendor's library
// would refuse: copies of partly registered memory, and registering memory twice.
// Unregistering memory while a copy uses it makes later copies fail.
//
// # Speed
//
// Each direction (host to device, device to host, inside the device) is a separate channel.
// A copy of n bytes takes latency + n/bandwidth, or as long as the actual copy in memory if
// that is longer. Copies in one direction share its bandwidth, those in different
// directions do not affect each other, and latency does not occupy a channel. If a copy
// wakes up late because the machine is busy, the next copy of its channel makes up for it,
// up to 2 ms: the speed is right on average.
//
// # Loss
//
// Crash loses all memory, as the reset of a card does. Copies in flight complete as usual,
// into memory that can no longer be read.
//
// # Sharing
//
// Memory from AllocShared is a memfd, which another process can map. It is sealed against
// shrinking and growing: after a truncation, access through this process's mapping would
// raise SIGBUS. A process that has it mapped keeps it after its release and after Crash,
// but then no longer shares it with the device.
//
// # Memory that outlives the process
//
// Memory from AllocIn is a file that the caller keeps, so every simulated device is
// devices.Lasting. Crash ends the epoch: the device does not resume an earlier one. Memory
// that Crash has lost is found again only by a process that never learns of the crash,
// because the one before died without using the device in between.
//
// # Lock order
//
// Device.mu, PinnedDevice.pinMu and each channel's lock are leaves. Nothing is copied,
// mapped or waited for with one of them held.
package sim
