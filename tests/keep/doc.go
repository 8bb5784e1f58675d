// Package keep is a devices.DescriptorStore for tests. It holds duplicates of descriptors
// in this process, so it outlives what a test abandons, or a process that it passes them
// to.
package keep
