// Package seal encrypts and authenticates what goes over a connection of two
// sides that share a secret.
//
// # The handshake
//
// Noise_NNpsk0_25519_AESGCM_SHA256, of the Noise Protocol Framework: one message
// of each side, which carries a payload. A peer without the secret can make neither
// message and read neither, so a listener does not answer it. Keys are of two
// ephemeral pairs: a secret that is lost later opens none of the records that were
// recorded before, nor the second message.
//
// The first message is encrypted under a key of the secret and of the public key
// beside it. So a recorded one tests guesses at the secret offline, and its payload is
// read with the secret. The secret must have the entropy of a key: 32 random bytes.
//
// The first message may be a repeated one. What a listener is told in it counts
// only when a record of the peer has come, which only its maker can make.
//
// # Records
//
//	0       1               4                        4+n            20+n
//	┌───────┬───────────────┬────────────────────────┬───────────────┐
//	│ kind  │ n             │ n bytes, AES-256-GCM … │ tag           │
//	└───────┴───────────────┴────────────────────────┴───────────────┘
//
// The nonce counts the records of a direction, so that one which is missing,
// repeated, moved or changed fails, and with it all that comes behind. After
// every rekeyEvery records the key is replaced as Noise does. An END record says
// that nothing more comes: a connection that ends without was cut.
//
// Bytes are handed over when their record has been checked, and none before.
//
// # Waiting
//
// A [Conn] is a net.Conn, whose Read and Write may run side by side, and which
// goes on after a deadline of a Read; a deadline that ends a Write ends all
// writing, since half of a record may have gone. Try, TryParts and ReadNow do not
// wait. Of what Try takes the kernel may take a part only: the rest is written by
// a goroutine, and nothing more is taken meanwhile.
//
// # Lock order
//
// Conn.reading and Conn.writing are leaves, and are held while the socket is read
// and written.
package seal
