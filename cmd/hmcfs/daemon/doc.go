// Package daemon assembles a mount from its layers, serves it, and takes it apart
// again. [Run] does all of this for one mount; [Options] describe it.
//
// # The life of a daemon
//
//	directories, locks ──> remains of a dead daemon ──> devices ──> records
//	  ──> engine ──> store ──> other nodes ──> mount ──> admin socket ──> ready
//
// Without a mount (Options.NoMount) the files are reached through sessions alone, and the file
// that names the socket is the last step.
//
//	ready ──> unmounted (by the admin socket, a signal, or umount(8))
//	  ──> sessions ──> other nodes ──> store ──> engine ──> records ──> devices ──> directories, locks
//
// Each step of the start pushes the function that undoes it; on a failure these
// run in reverse order, so that nothing stays mounted, locked or listening.
//
// A session of the admin socket has a client of package local, which acts for the
// user at the other end. All sessions end before the store closes: a successful
// unmount ends its clients first, and a busy mount keeps them.
//
// # The holder
//
// Unless Settings.NoHold is set, or the kernel does not repeat requests, a mount has a holder
// (package holder): a process that keeps descriptors for the daemon that follows, and starts it when
// this one dies. takePlaces connects to the holder of a dead daemon, or launches one, before it
// clears the mount point: a mount that the holder keeps is continued (fs.Resume). The
// layers below get the holder as a devices.DescriptorStore; the daemon itself keeps the program
// there. The last step of the start tells the holder how to start this
// daemon again, unless a service manager does. An orderly end of the daemon ends the holder, too.
// Upgrade has the holder start another program, and ends this process as a death does.
//
// What a daemon leaves to the next one (records, the state of device memory and of the mount, and
// more), and the messages of the holder, have formats with versions. formats lists those that this
// program reads, which hmcfs version --json prints. Upgrade compares them with those of the other
// program, and refuses one that does not read what is left.
//
// # Other nodes
//
// In a cluster, a mount is distinguished from all others of the same node name by
// an ID, which its state directory stores with its last epoch. The mount becomes a
// member of the cluster before it is mounted, and is refused if the name is taken;
// it then serves its store to the other nodes, and leaves the cluster before the
// store closes.
//
// # Lock order
//
// There are no locks: everything is built before the mount is ready and only read
// afterwards, and requests to unmount reach Run through a channel.
package daemon
