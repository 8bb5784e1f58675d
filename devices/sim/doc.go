// Package sim is the device family "sim": private memory of this process
// that behaves like a card of set size and speed. It stands in for hardware
// in tests, demonstrations and measurements.
//
//	sim:0,size=1GiB,bandwidth=20GB/s,latency=5us,mapped=true
//
// # Registered memory
//
// With pinned=true the device registers host memory, as a discrete card does:
// large copies between it and the host tier use the files' own pages. It
// refuses what a vendor's library would: memory that is registered in part, or
// twice. Giving memory back while a copy uses it fails the copies that follow.
//
// # Speed
//
// Each direction (host to device, device to host, inside the device) is a
// channel of its own. A copy of n bytes takes latency + n/bandwidth, or as
// long as the real copy in memory where that is more. Copies of one direction
// share its bandwidth, those of different directions do not disturb each
// other, and latency does not occupy a channel. A copy that wakes up late,
// because the machine is busy, is made up for by the next one of its channel,
// up to 2 ms: the speed is right on average.
//
// # Loss
//
// Crash loses all memory, as the reset of a card does. Copies that are under
// way end as they would have, into memory that nobody will see again.
//
// # Sharing
//
// Memory of AllocShared is a memfd, which another process can map. It is
// sealed against shrinking and growing: a mapping of ours would be a SIGBUS
// after a truncation. Who has it mapped keeps it after its release and after
// Crash, and then sees nothing of the device any more.
//
// # Lock order
//
// Device.mu, PinnedDevice.pinMu and each channel's lock are leaves. Nothing is
// copied, mapped or waited for with one of them held.
package sim
