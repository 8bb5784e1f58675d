// Package card has what the cards of all vendors have in common, whose libraries
// have the shape of CUDA's: the account of their memory, their failure, host
// memory that is registered, memory that is shared with other processes, and
// copies between two cards. A family of devices embeds a Card in its device,
// and gives it a Runtime for the calls that it makes by itself.
//
// # Threads
//
// A runtime works with the card that is bound to the calling thread, and
// goroutines wander between threads. So every call that is about a card is made
// in Card.On, which holds the thread and binds the card before. Nothing is
// restored afterwards, because every entry binds its own.
//
// # Failure
//
// After some errors (Runtime.Sticky) a runtime refuses all work with a card until
// the process ends. The card then takes a new epoch, so that all its memories
// are devices.ErrLost, and On answers Failed and makes no call any more, not even
// to free: a card that has fallen off its bus would not answer. What was held
// goes with the process. Other cards go on.
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
