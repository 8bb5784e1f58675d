// Package members is which nodes there are: their names, addresses, devices
// and incarnations. It knows nothing of what they say to each other.
//
// # Two ways to know
//
// With a coordination service every node keeps one record there under a lease
// and watches those of the others. Beside it is a mark without a lease, which a node
// removes when it leaves. A node whose record is gone and whose mark is there has
// lapsed: it died, or is cut off, and is shown with the time until it is back
// or Forget removes it. A node that comes back after a death has a new epoch. While the service is away the last known
// view stands, and State says since when.
//
// With a static list the nodes are those of the list, but for one that was
// forgotten and not met since. What is not in it (devices, epoch) they tell each
// other when they meet.
//
// # Names
//
// A node's rank in the communicator is a hash of its name, so that both sides
// of a first meeting know it without asking anybody. Two names with one rank
// can't be in one cluster: Join refuses the second.
package members
