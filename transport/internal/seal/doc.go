// Package seal encrypts and authenticates the traffic of a connection between two
// sides that share a secret.
//
// # The handshake
//
// Noise_NNpsk0_25519_AESGCM_SHA256, of the Noise Protocol Framework: one message
// from each side, which carries a payload. A peer without the secret can neither
// make nor read either message, so a listener does not answer it. Keys come from
// two ephemeral key pairs: a secret that is disclosed later does not decrypt
// earlier recorded records, nor the second message.
//
// The first message is encrypted under a key derived from the secret and from the
// public key sent with it. So guesses at the secret can be tested offline against
// a recorded one, and its payload can be read with the secret. The secret must
// have the entropy of a key: 32 random bytes.
//
// The first message may be a replay. A listener may act on its contents only
// after a record of the peer has arrived, which only the maker of the message can
// produce.
//
// # Records
//
//	0       1               4                        4+n            20+n
//	┌───────┬───────────────┬────────────────────────┬───────────────┐
//	│ kind  │ n             │ n bytes, AES-256-GCM … │ tag           │
//	└───────┴───────────────┴────────────────────────┴───────────────┘
//
// The nonce counts the records of a direction, so that a record which is missing,
// repeated, moved or changed fails, and with it all later ones. After every
// rekeyEvery records the key is replaced as Noise does. An END record announces
// that nothing follows: a connection that ends without it was cut.
//
// Bytes are returned only after their record has been verified.
//
// # Waiting
//
// A [Conn] is a net.Conn whose Read and Write may run concurrently. It stays
// usable after a Read has reached its deadline; a deadline that ends a Write ends
// all writing, since half of a record may have been sent. Try, TryParts and
// ReadNow do not wait. The kernel may accept only a part of what Try has
// accepted: a goroutine writes the rest, and nothing more is accepted meanwhile.
//
// # Lock order
//
// Conn.reading and Conn.writing are leaves, and are held while the socket is read
// and written.
package seal
