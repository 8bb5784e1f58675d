// Package control makes the sessions between ranks: it listens and connects, makes both
// sides prove who they are, and carries tags and small messages between two
// ranks.
//
// # The handshake
//
//	who connects                       who listens
//	HELLO   rank, epoch, nonce   ──>
//	                             <──   CHALLENGE  rank, epoch, nonce
//	PROOF   MAC of both          ──>   checked: else the connection is
//	                                   closed without a word
//	                             <──   WELCOME  session, MAC of all
//	                                   (or REFUSAL: this rank is taken, …)
//
// The proofs are HMAC-SHA256 under a key of the secret that the ranks of a job share.
// They cover both nonces, so none is good for a second connection, and both
// ranks and epochs, so none is good for another one. With TLS both sides show
// certificates for the name of their rank instead: see Options.TLS.
//
// Without TLS, HELLO and CHALLENGE are inside the two messages of a handshake of
// Noise (package seal), so that a peer without the secret is told nothing, and
// the rest is in records that are encrypted and authenticated. Over TCP so is all
// that follows, unless both sides have Options.Plain. Both say in HELLO and CHALLENGE
// which cover they want, and must want the same, so nothing between them can make
// them do without.
//
// A shared secret proves that the peer is a member of the job: a member can
// claim any rank that is not taken. Where members don't trust each other, use TLS.
//
// Handshakes run side by side and have a time limit, so one that is silent
// holds up no other. Their number is bounded: where there are too many, those
// of which no whole HELLO has come go first, and of those the ones of the source that
// has most, so that strangers take the places of strangers.
//
// # Tags and messages
//
// A [Link] carries them on a connection of its own, in order. Receivers have
// bounded queues: a rank that does not receive slows its peer down, and nothing else.
// Tags and messages share the connection, so a full queue of the one holds
// up the other.
//
// # Packets
//
// What a package over the communicator says to its like at the peer goes the
// same way, to a port that is the package's own. A packet is handed over in
// the goroutine that receives, where it lies, and must not be waited with.
//
// # Lock order
//
// Listener.mu and Link.mu are leaves. Link.mu is held while a socket is
// written to only for what fits without waiting.
package control
