// Package holder keeps what must outlive a daemon, in a small process of its own: the descriptor
// of the mount, and those of memory. [Serve] is that process; [Client] is the daemon's side of it.
//
//	daemon ──(unix socket, SOCK_SEQPACKET)──> holder
//	   own      this daemon is the one that is followed when it dies
//	   keep     a descriptor, under a name
//	   kept     the descriptors, for the daemon that follows
//	   write    something to a descriptor, in the holder's process, on a connection of its own
//	   drop     one of them is no longer needed
//	   ready    the daemon serves; how it is started again
//	   end      it ends in order, and so does the holder
//
// A daemon owns a holder for as long as its connection lasts. The kernel closes the connection
// after it has freed the memory of a process that dies, so the end of an owner that has not said
// end is its death. The holder then starts a daemon again, which owns it in turn. One daemon at
// most owns a holder, and the lock of the runtime directory excludes others that do not ask.
//
// # Limits
//
// A daemon that dies before it is ready, or right after that by its own fault, is started again a
// bounded number of times, after pauses that grow; one that finds no space on a disk, for a minute. Then the holder closes the descriptor of the
// mount, so that programs get the errors of a dead mount instead of waiting, and keeps the memory
// for the next hmcfs mount.
//
// # Lock order
//
// server.mu is a leaf, except that messages to the log are written under it. Client.mu is held
// during one exchange with the holder; Client.writing is a leaf.
package holder
