// Package control establishes the sessions between ranks: it listens and
// connects, authenticates both sides, and carries tags and small messages between
// two ranks.
//
// # The handshake
//
//	connecting rank                    listening rank
//	HELLO   rank, epoch, nonce   ──>
//	                             <──   CHALLENGE  rank, epoch, nonce
//	PROOF   MAC of both          ──>   verified: otherwise the connection is
//	                                   closed without a reply
//	                             <──   WELCOME  session, MAC of all
//	                                   (or REFUSAL: this rank is taken, …)
//
// The proofs are HMAC-SHA256 under a key derived from the secret that the ranks
// of a job share. They cover both nonces, so none can be replayed on a second
// connection, and both ranks and epochs, so none is valid for another one. With
// TLS both sides present certificates for the name of their rank instead: see
// Options.TLS.
//
// Without TLS, HELLO and CHALLENGE are the payloads of the two messages of a
// Noise handshake (package seal), so that a peer without the secret learns
// nothing, and what follows is in records that are encrypted and authenticated.
// Over TCP so is all later traffic, unless both sides have Options.Plain. HELLO
// and CHALLENGE each name the requested protection, and both must be the same, so
// no party in between can make the two sides do without it.
//
// A shared secret proves that the peer is a member of the job: a member can claim
// any rank that is not taken. Where members don't trust each other, use TLS.
//
// Handshakes run concurrently and have a time limit, so a silent one delays no
// other. Their number is bounded: when there are too many, those that have not
// yet sent a whole HELLO are dropped first, and of those the ones of the source
// with the most, so that strangers displace only strangers.
//
// # Tags and messages
//
// A [Link] carries them on a connection of its own, in order. Receivers have
// bounded queues: a rank that does not receive slows down its peer and nothing
// else. Tags and messages share the connection, so a full queue of one holds up
// the other.
//
// # Packets
//
// Packages built on the communicator exchange packets over the same connection,
// each on a port of its own. A packet is passed to its handler in the receiving
// goroutine, without a copy, and the handler must not block.
//
// # Lock order
//
// Listener.mu and Link.mu are leaves. While Link.mu is held, a socket is written
// only as far as it accepts without waiting.
package control
