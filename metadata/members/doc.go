// Package members is which nodes there are: their names, addresses, devices
// and incarnations. It knows nothing of what they say to each other.
//
// # Two ways to know
//
// With a coordination service every node keeps one record there under a lease
// and watches those of the others. Whoever dies is gone when its lease ends;
// whoever comes back has a new epoch. While the service is away the last known
// view stands, and State says since when.
//
// With a static list the nodes are those of the list, always, and what is not
// in it (devices, epoch) they tell each other when they meet.
//
// # Names
//
// A node's rank in the communicator is a hash of its name, so that both sides
// of a first meeting know it without asking anybody. Two names with one rank
// can't be in one cluster: Join refuses the second.
package members
