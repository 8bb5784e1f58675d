// Package card contains the code shared by the cards of all vendors whose libraries
// resemble CUDA's: the accounting of their memory, their failure, registered host memory,
// memory shared with other processes, and copies between two cards. A family embeds a Card
// in its device, and provides a Runtime for the calls that the Card makes.
//
// # Threads
//
// A runtime works with the card that is bound to the calling thread, but goroutines move
// between threads. So every call that concerns a card is made in Card.On, which locks the
// thread and binds the card first. Nothing is restored afterwards, because every use of On
// binds its own card.
//
// # Failure
//
// After some errors (Runtime.Sticky) a runtime refuses all work with a card until the
// process ends. The card then gets a new epoch, so that all its memories are
// devices.ErrLost. On returns the error of Failed and makes no more calls, not even to free
// memory: a card that has fallen off its bus would not answer. Its resources are freed when
// the process ends. Other cards continue to work.
//
// # Lock order
//
//	Card.life of the lower ordinal (for reading, by every operation)
//	  Card.life of the higher ordinal (BeginPeer)
//	    Set.joining (held while access between two cards is arranged)
//	      Set.mu
//	    Card.handleMu (held while a handle is made, opened or closed)
//	    Card.mu
//	    Set.pins (held while memory is registered; see pins)
//
// Only Close holds Card.life for writing.
package card
